"""Reading a project: config file, survey of the data, and what is decided from them."""
