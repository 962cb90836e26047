package text

import "unicode/utf8"

// RedactedHead redacts the beginning of a longer text and drops its last spare bytes. These bytes
// are needed to recognize a secret that begins before them.
func RedactedHead(s string, spare int, redact func(string) string) string {
	// A secret across the cut is redacted differently with and without the spare bytes. The common
	// prefix ends before the secret.
	whole, part := redact(s), redact(HeadBytes(s, len(s)-spare))
	n := 0
	for n < min(len(whole), len(part)) && whole[n] == part[n] {
		n++
	}
	return HeadBytes(part, n)
}

// RedactedTail redacts the end of a longer text and drops its first spare bytes, like RedactedHead.
func RedactedTail(s string, spare int, redact func(string) string) string {
	whole, part := redact(s), redact(s[len(HeadBytes(s, spare)):])
	n := 0
	for n < min(len(whole), len(part)) && whole[len(whole)-1-n] == part[len(part)-1-n] {
		n++
	}

	at := len(part) - n
	for at < len(part) && !utf8.RuneStart(part[at]) {
		at++
	}
	return part[at:]
}
