"""For other libraries: AllenNLP's names, the vectorizer of scikit-learn, the component of spaCy."""
