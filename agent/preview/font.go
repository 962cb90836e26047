package preview

import "github.com/ledongthuc/pdf"

// usual is the width of a letter of which the file does not say it, in thousandths of the size.
const usual = 500

// maxWidths bounds what is kept of a font: it has no more letters.
const maxWidths = 1 << 16

// font is how the bytes of a text are letters, and how wide these are.
type font struct {
	encoding pdf.TextEncoding
	two      bool // bytes of a letter, else one
	widths   map[int]float64
	other    float64
}

// fontOf is a font of the page, which is read once. One that is damaged has no letters.
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

// wide reads the widths of a font of many letters: [c [w …]] and [from to w], as many as there are.
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

// width is that of a text, in thousandths of the size, with how many letters and spaces it has.
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
