package redact

import (
	"hash/maphash"
	"strings"
)

// Maximum lengths of escapes in bytes: in JSON a surrogate pair, in HTML a named character.
const (
	longestOfAddresses = len(`%20`)
	longestOfJSON      = len(`\ud83d\ude00`)
	longestOfHTML      = 34
)

// Begun returns the redacted part of an incomplete text that more text cannot change. It omits an
// end that may be the beginning of a secret, in any form and with any escapes. For a longer text,
// the result starts with the result for the shorter text.
func (r *Redactor) Begun(text string) string {
	f := r.finder.Load()
	cut := f.certain(text)

	// A cut within a secret would leave half of it.
	places := f.find(text)
	for i := len(places) - 1; i >= 0; i-- {
		if p := places[i]; p.from < cut && cut < p.to {
			cut = p.from
		}
	}
	return r.Replace(text[:cut])
}

// certain returns the offset of the end of a text that may be the beginning of a secret.
func (f *finder) certain(text string) int {
	if len(f.byStart) == 0 && len(f.short) == 0 {
		return len(text)
	}

	e := &endings{look: look{finder: f, seen: map[uint64]bool{}, seed: maphash.MakeSeed()}, from: len(text)}
	e.at(text, nil)
	return e.from
}

// endings searches the end of each reading of a text.
type endings struct {
	look
	from int // offset in the text
}

func (e *endings) at(text string, readings []reading) {
	hash := maphash.String(e.seed, text)
	if e.seen[hash] {
		return
	}
	e.seen[hash] = true

	from := len(text)
	for _, end := range ends(text) {
		from = min(from, e.begunBefore(text, end))
	}
	for i := len(readings) - 1; i >= 0; i-- {
		from = readings[i].source(from, false)
	}
	e.from = min(e.from, from)

	if len(readings) == maxEscapes {
		return
	}
	for _, kind := range e.kinds {
		if read, r, changed := unescape(text, kind); changed {
			e.at(read, append(readings[:len(readings):len(readings)], r))
		}
	}
}

// ends returns the offsets at which a text may end, because it can end with an incomplete escape.
func ends(text string) []int {
	out := []int{len(text)}
	for i := len(text) - 1; i >= 0 && len(text)-i < longestOfHTML; i-- {
		left := len(text) - i
		switch text[i] {
		case '%':
			if left < longestOfAddresses {
				out = append(out, i)
			}
		case '\\':
			if left < longestOfJSON {
				out = append(out, i)
			}
		case '&':
			if !strings.Contains(text[i:], ";") {
				out = append(out, i)
			}
		}
	}
	return out
}

// begunBefore returns the offset of the longest beginning of a secret that ends at end. It returns
// end if there is none.
func (f *finder) begunBefore(text string, end int) int {
	for from := max(0, end-f.longest); from < end; from++ {
		if f.begin(text[from:end]) {
			return from
		}
	}
	return end
}

// begin reports whether a secret begins with text.
func (f *finder) begin(text string) bool {
	if len(text) >= 4 {
		two := uint16(text[0]) | uint16(text[1])<<8
		return f.begins[two/64]&(1<<(two%64)) != 0 && begins(f.byStart[startOf(text)], text)
	}

	for _, all := range f.byStart {
		if begins(all, text) {
			return true
		}
	}
	return begins(f.short, text)
}

func begins(all []found, text string) bool {
	for _, one := range all {
		if strings.HasPrefix(one.text, text) {
			return true
		}
	}
	return false
}
