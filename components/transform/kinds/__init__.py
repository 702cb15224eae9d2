"""The kinds of declared features and the steps that clean columns before them. `features.py` lists them."""
