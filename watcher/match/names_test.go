package match

import (
	"testing"
)

// TestPartialOf checks the names of unfinished downloads: in any case, with or without the random
// part before the first dot.
func TestPartialOf(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       bool
	}{
		{"x.pdf.part", "x.pdf", true}, {"X.PDF.PART", "x.pdf", true}, {"x.AbCd1234.pdf.part", "x.pdf", true},
		{"x.AbCd1234.tar.gz.part", "x.tar.gz", true}, {"x.AbCd1234.part", "x", true}, {"x.part", "x", true},
		{"x.pdf.crdownload", "x.pdf", true}, {"x.pdf.download", "x.pdf", true},
		{"y.pdf.part", "x.pdf", false}, {"x.a.b.pdf.part", "x.pdf", false}, {"x..pdf.part", "x.pdf", false},
		{"x.pdf.part", "x.pdf.part", false}, {"x.pdf", "x.pdf", false}, {"x.pdf.tmp", "x.pdf", false},
		{"xa.pdf.part", "x.pdf", false}, {"x.pdf.a.part", "x.pdf", false}, {".part", "", true},
	} {
		if got := IsPartialOf(c.name, c.file); got != c.want {
			t.Errorf("%s beside %s: %v", c.name, c.file, got)
		}
	}
}

// FuzzPartialOf checks that no name causes a panic, and that the two forms of Firefox are found.
func FuzzPartialOf(f *testing.F) {
	f.Add("x.tar.gz", "AbCd1234")
	f.Add("x", "")
	f.Add(".", ".")
	f.Fuzz(func(t *testing.T, file, random string) {
		IsPartialOf(file, random)
		if !IsPartialOf(file+".part", file) {
			t.Errorf("%q is not waited for by %q", file+".part", file)
		}
	})
}
