"""Prints the Morse code of each letter, from the order in which the code's tree is filled."""

ORDER = "ETIANMSURWDKGOHVF?L?PJBXCYZQ"

for number, letter in enumerate(ORDER, start=2):
    if letter != "?":
        print(letter, bin(number)[3:].replace("0", ".").replace("1", "-"), sep="\t")
