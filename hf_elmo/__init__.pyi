# The public names: static tools read their types here, and hf_elmo/__init__.py where to import each from on first use.

from .analysis.plots import layer_weights as layer_weights
from .analysis.plots import plot_layer_weights as plot_layer_weights
from .analysis.plots import plot_similarities as plot_similarities
from .analysis.plots import plot_word_plane as plot_word_plane
from .analysis.scoring import next_words as next_words
from .analysis.scoring import score as score
from .analysis.scoring import substitutes as substitutes
from .analysis.similarity import layer_similarities as layer_similarities
from .analysis.similarity import nearest_neighbors as nearest_neighbors
from .analysis.similarity import word_plane as word_plane
from .checkpoints.hub import push as push
from .checkpoints.loading import load_model as load_model
from .checkpoints.loading import path as path
from .configuration_elmo import ElmoConfig as ElmoConfig
from .embedding.corpus import embed as embed
from .embedding.workers import Embedder as Embedder
from .integrations.sklearn import ElmoVectorizer as ElmoVectorizer
from .modeling_classification_elmo import ElmoForSequenceClassification as ElmoForSequenceClassification
from .modeling_coreference_elmo import ElmoForCoreferenceResolution as ElmoForCoreferenceResolution
from .modeling_elmo import ElmoModel as ElmoModel
from .modeling_elmo import ElmoPreTrainedModel as ElmoPreTrainedModel
from .modeling_pretraining_elmo import ElmoForPreTraining as ElmoForPreTraining
from .modeling_pretraining_elmo import neighbor_labels as neighbor_labels
from .modeling_question_answering_elmo import ElmoForQuestionAnswering as ElmoForQuestionAnswering
from .modeling_tagging_elmo import ElmoForTokenClassification as ElmoForTokenClassification
from .pipeline_elmo import ElmoTokenClassificationPipeline as ElmoTokenClassificationPipeline
from .pretraining.perplexity import perplexity as perplexity
from .pretraining.recipe import pretrain as pretrain
from .pretraining.settled_start import settle as settle
from .pretraining.vocabulary import Vocabulary as Vocabulary
from .tasks.classification import classification_metrics as classification_metrics
from .tasks.coreference import CoreferenceCollator as CoreferenceCollator
from .tasks.coreference import coreference_metrics as coreference_metrics
from .tasks.coreference import encode_document as encode_document
from .tasks.coreference import read_conll2012 as read_conll2012
from .tasks.coreference import resolve as resolve
from .tasks.coreference import score_clusters as score_clusters
from .tasks.optimizer import optimizer_cls_and_kwargs as optimizer_cls_and_kwargs
from .tasks.predict import predict as predict
from .tasks.question_answering import answer as answer
from .tasks.question_answering import encode_questions as encode_questions
from .tasks.question_answering import squad_metrics as squad_metrics
from .tasks.stored_layers import LayersCollator as LayersCollator
from .tasks.stored_layers import store_layers as store_layers
from .tasks.tagging import TaggingCollator as TaggingCollator
from .tasks.tagging import arguments_of as arguments_of
from .tasks.tagging import read_conll as read_conll
from .tasks.tagging import role_metrics as role_metrics
from .tasks.tagging import span_metrics as span_metrics
from .tasks.word_vectors import add_word_vectors as add_word_vectors
from .tasks.word_vectors import count_words as count_words
from .tasks.word_vectors import read_word_vectors as read_word_vectors
from .tokenization_elmo import ElmoTokenizer as ElmoTokenizer

__version__: str
MODELS: dict[str, str]
