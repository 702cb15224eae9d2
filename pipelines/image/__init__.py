"""Builds the container image that the steps of a compiled pipeline run in, with docker, podman or buildah."""
