"""Django without product nouns: ids, problems, paging, jobs, queue, audit, blobs, health."""
