"""Jobs for schedulers: each is a thin ``run(argv)`` over the stages in `recsys_cg.workflow`."""
