package redact

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
)

// maxEscapes is the maximum number of nested escapes. JSON in JSON in a URL needs three.
const maxEscapes = 4

// finder searches for many texts at once.
type finder struct {
	byStart map[uint32][]found   // by their first four bytes, the longest first
	begins  [1 << 16 / 64]uint64 // a bit for each possible pair of first bytes
	short   []found              // texts of less than four bytes
	longest int                  // length of the longest text in bytes
	kinds   string               // kinds of escapes to decode
}

type place struct {
	from, to int // bytes
	mark     string
	long     int // length in bytes of the text that was found; the longest decides on the mark
}

func newFinder(all []found) *finder {
	f := &finder{byStart: map[uint32][]found{}, kinds: escapes}
	if slices.ContainsFunc(all, func(one found) bool { return strings.Contains(one.text, " ") }) {
		f.kinds += blanks // decoding these takes time in every text
	}
	// The longest first: a shorter text with the same beginning would leave the rest readable.
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), strings.Compare(a.text, b.text), strings.Compare(a.mark, b.mark))
	})

	for _, one := range slices.CompactFunc(all, func(a, b found) bool { return a.text == b.text }) {
		f.longest = max(f.longest, len(one.text))
		if len(one.text) < 4 {
			f.short = append(f.short, one)
			continue
		}

		key := startOf(one.text)
		f.byStart[key] = append(f.byStart[key], one)
		f.begins[key&0xffff/64] |= 1 << (key & 0xffff % 64)
	}

	return f
}

// startOf returns the search key of a text of at least four bytes.
func startOf(text string) uint32 { return binary.LittleEndian.Uint32([]byte(text[:4])) }

// find returns the places of secrets in text, in order and without overlaps.
func (f *finder) find(text string) []place {
	if len(f.byStart) == 0 && len(f.short) == 0 {
		return nil
	}

	l := &look{finder: f, seen: map[uint64]bool{}, seed: maphash.MakeSeed()}
	l.at(text, nil)
	return merge(l.places)
}

// look is a search through the readings of a text. A reading is the result of decoding its escapes.
type look struct {
	*finder
	places []place
	seen   map[uint64]bool // hashes of the readings that were searched
	seed   maphash.Seed
}

// at searches a reading of the text, and then the readings that follow from it. It decodes one kind
// of escapes at a time, because characters that look like another kind may belong to the secret.
func (l *look) at(text string, readings []reading) {
	hash := maphash.String(l.seed, text)
	if l.seen[hash] { // different orders of decoding can lead to the same reading
		return
	}
	l.seen[hash] = true

	for _, p := range l.scan(text) {
		for i := len(readings) - 1; i >= 0; i-- { // convert to offsets in the original text
			p.from, p.to = readings[i].source(p.from, false), readings[i].source(p.to, true)
		}
		l.places = append(l.places, p)
	}

	if len(readings) == maxEscapes {
		return
	}
	for _, kind := range l.kinds {
		if read, r, changed := unescape(text, kind); changed {
			l.at(read, append(slices.Clip(readings), r))
		}
	}
}

// scan returns every occurrence of a secret in text, without decoding escapes. Matches may overlap.
func (f *finder) scan(text string) (out []place) {
	for _, s := range f.short {
		for at := 0; ; {
			i := strings.Index(text[at:], s.text)
			if i < 0 {
				break
			}
			at += i + len(s.text)
			out = append(out, place{at - len(s.text), at, s.mark, len(s.text)})
		}
	}

	for i := 0; i+4 <= len(text); i++ {
		if two := uint16(text[i]) | uint16(text[i+1])<<8; f.begins[two/64]&(1<<(two%64)) == 0 {
			continue
		}

		key := uint32(text[i]) | uint32(text[i+1])<<8 | uint32(text[i+2])<<16 | uint32(text[i+3])<<24
		for _, s := range f.byStart[key] {
			if strings.HasPrefix(text[i:], s.text) {
				out = append(out, place{i, i + len(s.text), s.mark, len(s.text)})
				break
			}
		}
	}

	return out
}

// merge joins overlapping places. It keeps the mark of the longest find.
func merge(all []place) (out []place) {
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(a.from, b.from) })
	for _, p := range all {
		last := len(out) - 1
		if last < 0 || p.from >= out[last].to {
			out = append(out, p)
			continue
		}

		if p.long > out[last].long {
			out[last].mark, out[last].long = p.mark, p.long
		}
		out[last].to = max(out[last].to, p.to)
	}
	return out
}
