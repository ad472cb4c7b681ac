"""How input is read: the files (files.py), the columns of CoNLL (conll.py), and the rows of any input (rows.py)."""
