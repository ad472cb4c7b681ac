"""For other libraries: the vectorizer of scikit-learn, the component of spaCy."""
