"""What Tailrace writes as JSON and reads back, without I/O: the same for commands, HTTP and clients.

    record_json.py     a record as a JSON object, for reading and for writing
    run_record.py      what a run of a pipeline tells of itself in its topic
    moment.py          times as people write them

Input comes from strangers: what cannot be read is refused with the reason, or passed over where each module
says so.
"""
