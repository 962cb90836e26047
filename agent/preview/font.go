package preview

import "github.com/ledongthuc/pdf"

// usual is the width of a letter without a width in the file, in thousandths of the size.
const usual = 500

// maxWidths is the maximum number of widths per font. A font has no more letters.
const maxWidths = 1 << 16

// font decodes the bytes of a text and knows the widths of its letters.
type font struct {
	encoding pdf.TextEncoding
	two      bool // two bytes per letter instead of one
	widths   map[int]float64
	other    float64
}

// fontOf returns a font of the page. It reads each font once. A damaged font has no letters.
func (w *words) fontOf(name string, resources pdf.Value) (f *font) {
	if known, ok := w.fonts[name]; ok {
		return known
	}

	defer func() {
		if recover() != nil {
			f = &font{widths: map[int]float64{}, other: usual}
		}
		w.fonts[name] = f
	}()

	v := resources.Key("Font").Key(name)
	f = &font{widths: map[int]float64{}, other: usual, two: v.Key("Subtype").Name() == "Type0"}
	f.encoding = (&pdf.Font{V: v}).Encoder()
	if f.two {
		f.wide(v.Key("DescendantFonts").Index(0))
		return f
	}

	first, widths := int(v.Key("FirstChar").Int64()), v.Key("Widths")
	for i := range min(widths.Len(), maxWidths) {
		f.widths[first+i] = widths.Index(i).Float64()
	}

	return f
}

// wide reads the widths of a font with many letters: [c [w …]] and [from to w].
func (f *font) wide(v pdf.Value) {
	if dw := v.Key("DW"); dw.Kind() != pdf.Null {
		f.other = dw.Float64()
	} else {
		f.other = 1000
	}

	all := v.Key("W")
	for i := 0; i+1 < all.Len() && len(f.widths) < maxWidths; {
		from, second := int(all.Index(i).Int64()), all.Index(i+1)
		if second.Kind() == pdf.Array {
			for n := range min(second.Len(), maxWidths) {
				f.widths[from+n] = second.Index(n).Float64()
			}
			i += 2
			continue
		}

		width := all.Index(i + 2).Float64()
		for c := from; c <= min(int(second.Int64()), from+maxWidths); c++ {
			f.widths[c] = width
		}

		i += 3
	}
}

func (f *font) decode(raw string) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	if f.encoding == nil {
		return ""
	}
	return f.encoding.Decode(raw)
}

// width returns the width of a text in thousandths of the size, and its numbers of letters and
// spaces.
func (f *font) width(raw string) (width float64, letters, spaces int) {
	step := 1
	if f.two {
		step = 2
	}

	for i := 0; i+step <= len(raw); i += step {
		code := int(raw[i])
		if f.two {
			code = code<<8 | int(raw[i+1])
		} else if raw[i] == ' ' {
			spaces++
		}

		one, ok := f.widths[code]
		if !ok {
			one = f.other
		}

		width += one
		letters++
	}

	return width, letters, spaces
}
