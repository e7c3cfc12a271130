"""What commands read and write in addition to values: files, arrays, samples of texts."""
