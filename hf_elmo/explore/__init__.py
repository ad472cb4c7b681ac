"""A page in the browser to look into an ELMo: `hf-elmo explore`, or a Space on the Hub."""
