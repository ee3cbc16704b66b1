"""The jobs, one folder each: request, measurements, decision, document and report."""
