package preview

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ledongthuc/pdf"

	"rouse/internal/text"
)

// maxPages is the maximum number of pages in one preview.
const maxPages = 50

func readPDF(content []byte, from, chars int) (out PDF, err error) {
	r, err := openPDF(content)
	if err != nil {
		return out, err
	}
	if out.Pages = r.NumPage(); out.Pages <= 0 {
		return out, fault("is a damaged PDF: it has no pages")
	}
	if out.First = max(from, 1); out.First > out.Pages {
		return out, nil
	}

	left := chars
	for n := out.First; n <= min(out.Pages, out.First+maxPages-1); n++ {
		said, ok := page(r, n)
		if !ok {
			out.Unread = append(out.Unread, n)
		}

		if said != "" {
			said = fmt.Sprintf("[Page %d]\n%s\n\n", n, said)
		}

		if size := utf8.RuneCountInString(said); size > left {
			if n > out.First { // only the first page is cut; other pages go into the next preview
				break
			}
			whole := said
			said, out.Cut = text.Head(said, left), true
			out.Rest = text.HeadBytes(whole[len(said):], maxRest)
		} else {
			left -= size
		}

		out.Text += said
		out.Last = n
	}

	out.Text = strings.TrimSuffix(out.Text, "\n")
	return out, nil
}

// openPDF opens a PDF. It tolerates an unusual version and bytes after the end, like other programs
// but unlike the parser. It overwrites the beginning of content.
func openPDF(content []byte) (*pdf.Reader, error) {
	const head, end = "%PDF-1.7\n", "%%EOF"
	at := bytes.LastIndex(content, []byte(end))
	if len(content) < 1<<7 || !bytes.HasPrefix(content, []byte("%PDF-")) || at < 0 {
		return nil, fault("is no PDF, or is cut off")
	}

	copy(content, head)
	content = content[:at+len(end)]
	r, err := pdf.NewReader(bytes.NewReader(content), int64(len(content)))
	switch {
	case errors.Is(err, pdf.ErrInvalidPassword):
		return nil, fault("is a PDF that opens with a password alone; save it without one")
	case err != nil && strings.Contains(err.Error(), "encryption"):
		return nil, fault("is an encrypted PDF of a kind that is not read here; save it without encryption")
	case err != nil:
		return nil, fault("is a damaged PDF: %v", err)
	}

	return r, nil
}

// page returns the text of a page. ok is false if there may be more text that could not be decoded.
func page(r *pdf.Reader, n int) (text string, ok bool) {
	p := r.Page(n)
	w := words{fonts: map[string]*font{}, state: state{scale: 1, place: identity, line: identity, page: identity}}
	ok = w.read(p.V.Key("Contents"), p.Resources(), 0)
	return w.text(), ok
}

// printable maps control characters to -1, so that strings.Map removes them.
func printable(r rune) rune {
	if r == '\u00a0' {
		return ' '
	}
	if r < ' ' || r == 0x7f || r == utf8.RuneError || r >= 0x80 && r < 0xa0 {
		return -1
	}
	return r
}

func abs(x float64) float64 { return max(x, -x) }
