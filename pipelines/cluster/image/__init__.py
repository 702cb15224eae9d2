"""Builds the container image of a compiled pipeline's steps, with docker, podman or buildah."""
