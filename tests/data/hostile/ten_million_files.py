"""Ten million files, as far as it comes; refused ones are tried again under other names."""
import os
made = 0
for number in range(10_000_000):
    try:
        os.close(os.open("/tmp/%d" % number, os.O_CREAT | os.O_WRONLY))
        made += 1
    except OSError:
        try:
            os.link("/tmp/0", "/logs/%d" % number)
        except OSError:
            pass
os._exit(0)
