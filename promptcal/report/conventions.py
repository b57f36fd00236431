"""What every number of a report means, in words that go with it."""

UNITS = "Accuracy, ECE, gap (mean confidence less accuracy) and H in percent, NLL in nats"

METRICS_NOTE = (
    "Means, 95 % intervals and (standard deviations over runs). Fractions in percent, NLL in nats; ECE has 15 bins "
    "where none are said."
)
PANELS_NOTE = (
    "Reliability diagrams of the images of all runs together, before any calibrator. Blue: accuracy in each of 15 bins "
    "of confidence; red: from there to the bin's mean confidence; above: images in it; empty bins are blank. The ECE "
    "in a panel is that of the pooled images, as a fraction."
)

CONVENTIONS = (
    ("Units", "Accuracy, ECE, gap and H in percent, NLL in nats, the Brier score as the sum over classes (0 to 2)."),
    (
        "ECE",
        "Top-label expected calibration error, 15 equal-width bins (a, b], 0 in the first bin and 1 in the last, "
        "weighted by the images in a bin; 10 and 20 bins are among all metrics.",
    ),
    ("Gap", "Mean confidence less accuracy: positive where the model is too sure of itself on the whole."),
    (
        "H",
        "The harmonic mean of base and novel accuracy of each run, then the mean over runs; an average over data sets "
        "is the mean of its column.",
    ),
    (
        "Base and novel",
        "Two halves of the classes, each classified among its own classes alone; in the protocol base_to_novel_all "
        "among all classes together, where the true class says which half an image belongs to.",
    ),
    (
        "Other splits",
        "'test' are the test images of all classes. Splits with the name of a data set are its test images, classified "
        "among its own classes in its own texts; the first of them was trained on, 'mean of others' is the mean over "
        "the rest.",
    ),
    (
        "Calibrators",
        "Fitted on validation images of the trained classes, never on test images; a calibrator that is tied to these "
        "classes has no numbers where a split has others. TS is temperature scaling by NLL. "
        "'Zero-shot where novel' keeps the tuned model on base classes and puts the zero-shot one in its place "
        "elsewhere; 'half zero-shot' is the mean of tuned and zero-shot logits.",
    ),
    (
        "Intervals",
        "95 %, basic bootstrap: images are reweighted within runs (one weight an image, whichever run saw it) and runs "
        "are drawn (whole class splits where there are several). Of one run they "
        "cover the luck of the test images alone. Chance makes an ECE larger, which the interval takes off: near the "
        "noise floor it can lie below the ECE, and it covers the true one less often than 95 %.",
    ),
    (
        "Best values",
        "Bold only where the row beats every other row of the table in paired tests on the same images and runs, after "
        "Holm's correction over the rows, at 0.05. Rows that are identical to the best one are bold with it. "
        "Over data sets, six or more are needed (Wilcoxon signed-rank).",
    ),
    (
        "Noise floor",
        "The ECE that a perfectly calibrated model with the same confidences would score by chance on as many images.",
    ),
)
