package redact

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
)

// maxEscapes is how often a text is read as escaped: JSON in JSON in an address is three.
const maxEscapes = 4

// finder finds many texts at once.
type finder struct {
	byStart map[uint32][]found   // by their first four bytes, the longest first
	begins  [1 << 16 / 64]uint64 // a bit for each two bytes that one begins with
	short   []found              // of fewer bytes, as they are
	longest int                  // bytes of the longest
	kinds   string               // of escapes that are read
}

type place struct {
	from, to int // bytes
	mark     string
	long     int // bytes of what was found, which decides between marks
}

func newFinder(all []found) *finder {
	f := &finder{byStart: map[uint32][]found{}, kinds: escapes}
	if slices.ContainsFunc(all, func(one found) bool { return strings.Contains(one.text, " ") }) {
		f.kinds += blanks // which costs time in every text
	}
	// The longest first: one that begins another would leave the rest of it readable.
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

// startOf is by what a text of four bytes or more is looked for.
func startOf(text string) uint32 { return binary.LittleEndian.Uint32([]byte(text[:4])) }

// find finds all places of a text, in order and apart from each other.
func (f *finder) find(text string) []place {
	if len(f.byStart) == 0 && len(f.short) == 0 {
		return nil
	}

	l := &look{finder: f, seen: map[uint64]bool{}, seed: maphash.MakeSeed()}
	l.at(text, nil)
	return merge(l.places)
}

// look is a search through the readings of a text: what it says when this, or that, in it is taken for an escape.
type look struct {
	*finder
	places []place
	seen   map[uint64]bool // hashes of the readings that were searched
	seed   maphash.Seed
}

// at searches a reading of the text, and those that it has in turn. One kind of escapes is read at a time: what
// looks like one of another kind may be the secret's own.
func (l *look) at(text string, readings []reading) {
	hash := maphash.String(l.seed, text)
	if l.seen[hash] { // JSON in an address is what an address in JSON is
		return
	}
	l.seen[hash] = true

	for _, p := range l.scan(text) {
		for i := len(readings) - 1; i >= 0; i-- { // back to where it stands in the text
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

// scan finds all places of a text as it is. They may overlap.
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

// merge joins the places that overlap; of their marks that of the longest find stays.
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
