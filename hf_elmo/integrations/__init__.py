"""For other libraries: the vectorizer of scikit-learn, the component and the layer of spaCy."""
