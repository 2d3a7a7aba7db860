"""The results of each study, from its measurements: `results(run) -> StudyResults` in the module of its name."""
