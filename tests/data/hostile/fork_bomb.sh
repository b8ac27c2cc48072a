# The classic: the first shell leaves at once, its children go on.
b() { b | b & }
b
exit 7
