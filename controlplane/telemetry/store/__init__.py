"""The embedded metric store: one SQLite file, one writer at a time, any number of reading processes.

A write is one row of `batch`, durable when the call returns. Packing turns batches into compressed chunks of one
series each; retention removes chunks. Readers see both in one transaction.
"""
