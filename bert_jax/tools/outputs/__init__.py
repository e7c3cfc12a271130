"""What commands read and write in addition to values: resumable files, arrays, samples of texts."""
