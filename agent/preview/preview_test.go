package preview

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/image/bmp"

	"rouse/agent/sandbox"
)

// boxes confine the processes of all tests, by tier. The tiers of this machine are probed once.
var boxes = map[sandbox.Tier]*sandbox.Sandbox{}

// TestMain runs the tests, and the processes that read their files.
func TestMain(m *testing.M) {
	sandbox.Child()
	Child()

	for tier, o := range map[sandbox.Tier]sandbox.Options{sandbox.TierNamespaces: {}, sandbox.TierLandlock: {MaxTier: sandbox.TierLandlock}, sandbox.TierNone: {OffReason: "as where nothing confines"}} {
		box, err := sandbox.New(o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		boxes[tier] = box
	}
	code := m.Run()
	for _, box := range boxes {
		if err := box.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// pdfOf returns a file with objects. The first object is the catalogue.
func pdfOf(objects ...string) string {
	var out strings.Builder
	out.WriteString("%PDF-1.4\n")
	var at []int
	for i, o := range objects {
		at = append(at, out.Len())
		fmt.Fprintf(&out, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}

	xref := out.Len()
	fmt.Fprintf(&out, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range at {
		fmt.Fprintf(&out, "%010d 00000 n \n", offset)
	}

	fmt.Fprintf(&out, "trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, xref)
	return out.String()
}

func stream(head, content string) string {
	return fmt.Sprintf("<<%s/Length %d>>stream\n%s\nendstream", head, len(content), content)
}

// thin returns entries of a cross-reference table that take no bytes in the file.
func thin(index string) string {
	return "%PDF-1.4\n1 0 obj\n<</Type/XRef/Size 1/W[0 0 0]/Index[" + index + "]/Length 0>>stream\n\nendstream\nendobj\n" + strings.Repeat("%\n", 50) + "startxref\n9\n%%EOF"
}

const (
	catalogue = "<</Type/Catalog/Pages 2 0 R>>"
	helvetica = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
)

// pages returns a file with one page for each content stream.
func pages(contents ...string) string {
	objects := []string{catalogue, "", helvetica}
	var kids strings.Builder
	for _, content := range contents {
		n := len(objects) + 1
		fmt.Fprintf(&kids, "%d 0 R ", n)
		objects = append(objects, fmt.Sprintf("<</Type/Page/Parent 2 0 R/Resources<</Font<</F 3 0 R>>>>/Contents %d 0 R>>", n+1), stream("", content))
	}

	objects[1] = fmt.Sprintf("<</Type/Pages/Count %d/Kids[%s]>>", len(contents), kids.String())
	return pdfOf(objects...)
}

func said(text string) string { return "BT /F 10 Tf (" + text + ") Tj ET" }

// TestWords checks the lines of a page, and the spaces that are drawn as gaps.
func TestWords(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, draw, want string }{
		{"lines", "BT /F 10 Tf 12 TL 50 700 Td (One) Tj T* (Two) Tj (, three) ' ET", "One\nTwo\n, three"},
		{"a paragraph", "BT /F 10 Tf 50 700 Td (One) Tj 0 -40 Td (Two) Tj ET", "One\n\nTwo"},
		{"kerned", "BT /F 10 Tf 50 700 Td [(A)20(way)-300(home)] TJ ET", "Away home"},
		{"a table", "BT /F 10 Tf 1 0 0 1 50 700 Tm (Sum) Tj 1 0 0 1 300 700 Tm (12.50) Tj 1 0 0 1 50 688 Tm (Tax) Tj 1 0 0 1 300 688 Tm (2.50) Tj ET", "Sum\t12.50\nTax\t2.50"},
		{"a scaled page", "q 0.1 0 0 0.1 0 0 cm BT /F 100 Tf 500 7000 Td (One) Tj 0 -120 Td (Two) Tj ET Q", "One\nTwo"},
		{"other letters", "BT /F 10 Tf 50 700 Td (\\344\\200\\267 \\(x\\)\\001) Tj ET", "ä€· (x)"},
		{"nothing drawn", "0 0 m 10 10 l S", ""},
		{"Q too often", "Q Q BT /F 10 Tf (One) Tj ET", "One"},
		{"no font", "BT (One) Tj ET", ""},
		{"missing numbers", "BT /F 10 Tf Td Tm TJ (One) Tj ET", "One"},
	}

	var all []string
	for _, c := range cases {
		all = append(all, c.draw)
	}

	out, err := New(boxes[sandbox.TierNamespaces]).PDF(t.Context(), strings.NewReader(pages(all...)), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}

	for i, c := range cases {
		_, text, _ := strings.Cut(out.Text, fmt.Sprintf("[Page %d]\n", i+1))
		if text, _, _ = strings.Cut(text, "[Page "); strings.TrimSpace(text) != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}

// TestWordsOfFontsAndForms checks fonts with many letters, which encode their widths differently,
// and text in forms.
func TestWordsOfFontsAndForms(t *testing.T) {
	t.Parallel()
	unicode := stream("", "1 begincodespacerange <0000> <ffff> endcodespacerange 2 beginbfchar <0001> <0041> <0002> <0042> endbfchar")
	file := pdfOf(catalogue, "<</Type/Pages/Count 1/Kids[3 0 R]>>",
		"<</Type/Page/Resources<</Font<</G 4 0 R>>/XObject<</X 7 0 R/Y 8 0 R>>>>/Contents[5 0 R 5 0 R]>>",
		"<</Type/Font/Subtype/Type0/Encoding/Identity-H/ToUnicode 6 0 R/DescendantFonts[<</DW 400/W[1[2000] 2 2 300]>>]>>",
		stream("", "BT /G 10 Tf 0 700 Td <0001> Tj 20 0 Td <0002> Tj 5.5 0 Td <0001> Tj ET /X Do /Y Do "), unicode,
		stream("/Subtype/Form/Matrix[1 0 0 1 0 -100]", "BT /G 10 Tf 0 700 Td <0002> Tj ET /X Do"), "<</Subtype/Image>>")

	for tier, box := range boxes { // the result is the same on each tier
		out, err := New(box).PDF(t.Context(), strings.NewReader(file), 1, 1000)
		if want := "[Page 1]\nAB A"; err != nil || !strings.HasPrefix(out.Text, want) || !strings.Contains(out.Text, "\nB") || out.Pages != 1 {
			t.Errorf("tier %s: %q, want %q (%v)", tier, out.Text, want, err)
		}
	}
}

// TestPages checks that as many pages are shown as fit, from the requested page.
func TestPages(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 60 {
		many = append(many, said(fmt.Sprintf("This is page %d.", i+1)))
	}

	file := pages(many...)
	for _, c := range []struct {
		from, chars, first, last int
		cut                      bool
	}{{0, 60, 1, 2, false}, {2, 60, 2, 3, false}, {60, 60, 60, 60, false}, {3, 15, 3, 3, true}, {5, 15_000, 5, 54, false}} {
		out, err := New(boxes[sandbox.TierNamespaces]).PDF(t.Context(), strings.NewReader(file), c.from, c.chars)
		if err != nil || out.Pages != 60 || out.First != c.first || out.Last != c.last || out.Cut != c.cut || len([]rune(out.Text)) > c.chars {
			t.Errorf("%+v: %+v, %v", c, out, err)
		}
	}

	if out, err := New(boxes[sandbox.TierNamespaces]).PDF(t.Context(), strings.NewReader(file), 61, 60); err != nil || out.Pages != 60 || out.First != 61 || out.Text != "" {
		t.Errorf("%+v, %v", out, err)
	}

	broken := pages(said("One"), "BT /F 10 Tf (Two) Tj ET >> ", said("Three"))
	if out, err := New(boxes[sandbox.TierNamespaces]).PDF(t.Context(), strings.NewReader(broken), 1, 1000); err != nil || !strings.Contains(out.Text, "Three") {
		t.Errorf("%+v, %v", out, err)
	}

	newer := "%PDF-2.0\n" + strings.TrimPrefix(file, "%PDF-1.4\n") + strings.Repeat("\x00", 300)
	if out, err := New(boxes[sandbox.TierNamespaces]).PDF(t.Context(), strings.NewReader(newer), 1, 60); err != nil || out.Pages != 60 {
		t.Errorf("a newer version, with bytes behind its end: %+v, %v", out, err)
	}
}

// TestHostilePDF checks that a hostile file always causes a Fault, and soon.
func TestHostilePDF(t *testing.T) {
	t.Parallel()
	good := pages(said("One"))
	encrypted := strings.Replace(good, "/Root 1 0 R", "/Root 1 0 R/Encrypt<</Filter/Standard/V 5/R 6/Length 256>>/ID[(a)(b)]", 1)
	locked := strings.Replace(good, "/Root 1 0 R", "/Root 1 0 R/Encrypt<</Filter/Standard/V 2/R 3/Length 128/P -1/O("+strings.Repeat("o", 32)+")/U("+strings.Repeat("u", 32)+")>>/ID[(a)(b)]", 1)
	v, brief := New(boxes[sandbox.TierNamespaces]), New(boxes[sandbox.TierNamespaces])
	v.time = 2 * time.Minute // on a slow machine, the memory limit must be reached before the timeout
	brief.time = 500 * time.Millisecond
	for name, c := range map[string]struct{ file, want string }{
		"empty":             {"", "is no PDF"},
		"a text":            {strings.Repeat("no PDF ", 100), "is no PDF"},
		"cut off":           {good[:len(good)/2], "is no PDF, or is cut off"},
		"no pages":          {pdfOf(catalogue), "it has no pages"},
		"an end alone":      {"%PDF-1.4\n" + strings.Repeat("x", 200) + "%%EOF", "damaged"},
		"encrypted":         {encrypted, "is an encrypted PDF"},
		"with a password":   {locked, "opens with a password"},
		"pages in a circle": {pdfOf(catalogue, "<</Type/Pages/Count 9/Kids[2 0 R]>>"), "cannot be read within 500ms"},
		"a deep object":     {strings.Replace(good, "trailer\n", "trailer\n"+strings.Repeat("[", 1<<20), 1), "is a damaged PDF"},
		"a length too long": {thin("500000000 1"), "memory"},
		"endless entries":   {thin("0 2000000000"), "memory"},
		"negative counts":   {strings.Replace(good, "/Count 1", "/Count -1", 1), "it has no pages"},
	} {
		in := v
		if strings.Contains(c.want, "within") {
			in = brief
		}

		out, err := in.PDF(t.Context(), strings.NewReader(c.file), 1, 1000)
		var bad *Fault
		if !errors.As(err, &bad) || !strings.Contains(bad.Message, c.want) {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}

	if out, err := v.PDF(t.Context(), strings.NewReader(good), 1, 1000); err != nil || out.Text != "[Page 1]\nOne\n" {
		t.Errorf("after all of them: %+v, %v", out, err)
	}
}

// TestDamagedPDF checks that a file with changed bytes causes no error other than a Fault.
func TestDamagedPDF(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	good := pages(said("One"), said("Two"))
	v := New(boxes[sandbox.TierNamespaces])
	v.time = 2 * time.Second
	for range 12 {
		bad := []byte(good)
		for range 1 + r.IntN(8) {
			bad[r.IntN(len(bad))] = byte(r.IntN(256))
		}

		var fault *Fault
		if _, err := v.PDF(t.Context(), bytes.NewReader(bad), 1, 1000); err != nil && !errors.As(err, &fault) {
			t.Fatalf("%q: %v", bad, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(boxes[sandbox.TierNamespaces]).PDF(ctx, strings.NewReader(""), 1, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestPNG checks that a BMP picture becomes a PNG with the same pixels, and that a huge picture is
// rejected.
func TestPNG(t *testing.T) {
	t.Parallel()
	picture := image.NewNRGBA(image.Rect(0, 0, 3, 2))
	picture.Set(1, 1, color.NRGBA{R: 200, G: 100, B: 50, A: 255})
	var file bytes.Buffer
	if err := bmp.Encode(&file, picture); err != nil {
		t.Fatal(err)
	}

	data, err := New(boxes[sandbox.TierNamespaces]).PNG(t.Context(), bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}

	back, err := png.Decode(bytes.NewReader(data))
	if err != nil || back.Bounds() != picture.Bounds() {
		t.Fatalf("%v, %v", back, err)
	}
	if r, g, b, _ := back.At(1, 1).RGBA(); r>>8 != 200 || g>>8 != 100 || b>>8 != 50 {
		t.Errorf("%d %d %d", r>>8, g>>8, b>>8)
	}

	huge := bytes.Clone(file.Bytes())
	copy(huge[18:], []byte{0, 0, 1, 0, 0, 0, 1, 0}) // 65536 times 65536

	for want, bad := range map[string][]byte{"65536 times 65536": huge, "cannot be read": file.Bytes()[:40], "BMP": []byte("BM")} {
		var fault *Fault
		if _, err := New(boxes[sandbox.TierNamespaces]).PNG(t.Context(), bytes.NewReader(bad)); !errors.As(err, &fault) || !strings.Contains(fault.Message, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestHostileXLSX checks a small spreadsheet that is endless inside: it may affect only its reader.
func TestHostileXLSX(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	for name, text := range map[string]string{
		"xl/workbook.xml":            `<workbook xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="a" r:id="r"/></sheets></workbook>`,
		"xl/worksheets/s.xml":        "<worksheet/>",
		"xl/sharedStrings.xml":       "<sst>" + strings.Repeat("<si><t>x</t></si>", 5<<20),
		"xl/_rels/workbook.xml.rels": `<Relationships><Relationship Id="r" Type="x/worksheet" Target="worksheets/s.xml"/></Relationships>`,
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}

	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	v := New(boxes[sandbox.TierNamespaces])
	v.time = 500 * time.Millisecond
	var fault *Fault
	if _, err := v.XLSX(t.Context(), &file, "", 8, 8); !errors.As(err, &fault) || !strings.Contains(fault.Message, "within 500ms") {
		t.Errorf("%v", err)
	}
}
