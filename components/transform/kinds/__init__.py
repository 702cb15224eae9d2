"""The kinds of declared features there are, and the steps that clean columns before them. `features.py` lists them."""
