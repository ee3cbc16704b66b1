"""The same question for several sizes of a dimension, or several inputs."""
