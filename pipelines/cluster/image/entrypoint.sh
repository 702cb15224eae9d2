#!/bin/sh
# Entry point of an image that runs steps and Beam's workers. Dataflow and worker pools pass options to Beam's program,
# such as --id=1 or --worker_pool; anything else is a command. Kubeflow and Vertex AI replace the entry point.
case "$1" in
  -*) exec /opt/apache/beam/boot "$@" ;;
  *) exec "$@" ;;
esac
