"""The stages of the main job, and the work directory they share: what the command line and the jobs call."""
