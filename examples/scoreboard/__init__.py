"""What an ELMo knows: public tests, each figure with its spread and the rows that others published."""
