package match

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/internal/pattern"
)

// TestSelects checks that hidden, temporary and unfinished files are selected only by patterns that
// match them explicitly (OSA-92).
func TestSelects(t *testing.T) {
	for _, c := range []struct {
		include, exclude string
		yes, no          string
	}{
		{"", "", "a.csv sub/b.csv ä.txt part a.parts tmp.a ~a $a #a a# download thumbs.dbx a~b # #a a#", ".a a~ a.part a.crdownload a.filepart a.tmp a.swp 4913 .DS_Store .git/a sub/.x/b sub/a.tmp"},
		{"", "", "", "a.PART a.partial a.CrDownload a.opdownload a.download a.pdf.download/a.pdf A.TMP a.swo ~$a.docx sub/~$A.DOCX #a# .~lock.a.odt# Thumbs.db THUMBS.DB desktop.ini Desktop.ini x.part/a ~ ## .part ~$"},
		{"*.csv", "", "a.csv x/y/a.csv", "a.txt acsv"},
		{"data", "", "data data/a data/x/y", "a datas/a"},
		{"data/", "", "data/a x/data/a", "a"},
		{"./data/*.csv", "", "data/a.csv", "x/data/a.csv data/x/a.csv"},
		{"data/**/*.csv", "", "data/a.csv data/x/y/a.csv", "a.csv"},
		{"*.{csv,pdf}", "", "a.csv b.pdf", "c.txt"},
		{"*.csv", "drafts old-*", "a.csv", "drafts/a.csv x/drafts/y/a.csv old-a.csv x/old-b.csv"},
		{"", "**/*.log", "a.txt", "a.log x/a.log"},
		{"*.tmp .env", "", "a.tmp .env sub/.env", "a.part .other a.csv"},
		{"*", "", "a.csv", "a.tmp .env"},
		{"*.{tmp,csv}", "", "a.tmp A.TMP a.csv", "a.part b.txt"},
		{"*.db *.ini", "", "a.db a.ini", "Thumbs.db desktop.ini"},
		{"thumbs.db", "", "Thumbs.db thumbs.db x/Thumbs.DB", "a.db"},
		{"~$*", "", "~$a.docx", "a.docx"},
		{"*.download", "", "a.download a.DOWNLOAD x.download/a", "a.part"},
		{"data.part/*.csv", "", "data.part/a.csv", "data.part/a.tmp other.part/b.csv"},
		{"*.pdf", "", "SCAN.PDF a.Pdf a.pdf sub/X.PDF", "a.pdfx"},
		{"Über*.txt", "", "ÜBER-a.TXT über-b.txt Über.txt", "uber.txt"},
		{"Über*.txt r\u00e9sum\u00e9?.pdf", "", "U\u0308ber-a.txt U\u0308BER-a.txt re\u0301sume\u03011.pdf x/re\u0301sume\u03011.pdf", "uber.txt"},
		{"U\u0308ber*.txt", "", "Über-a.txt", "uber.txt"},
		{"*.pdf", "entw\u00fcrfe \u00fcbung*", "a.pdf", "entwu\u0308rfe/a.pdf u\u0308bung-a.pdf U\u0308bung-a.pdf"},
		{"[A-C]*", "", "a b.txt Cx", "d"},
		{"*.pdf", "*.Old.pdf drafts", "a.pdf", "a.old.PDF DRAFTS/a.pdf Drafts/x/b.pdf"},
	} {
		w := Filter{Include: strings.Fields(c.include), Exclude: strings.Fields(c.exclude)}
		for _, rel := range strings.Fields(c.yes) {
			if !w.Selects(rel) {
				t.Errorf("include %q, exclude %q: %s is not taken", c.include, c.exclude, rel)
			}
		}

		for _, rel := range strings.Fields(c.no) {
			if w.Selects(rel) {
				t.Errorf("include %q, exclude %q: %s is taken", c.include, c.exclude, rel)
			}
		}
	}
}

// TestSelectsExactCase checks that patterns are case-sensitive with case: exact, while ignored
// names are not.
func TestSelectsExactCase(t *testing.T) {
	w := Filter{Include: []string{"*.pdf", "KEEP.TMP"}, Exclude: []string{"Old*", "\u00dc*"}, ExactCase: true}
	for rel, want := range map[string]bool{"U\u0308.pdf": false, "u\u0308.pdf": true, "a.pdf": true, "SCAN.PDF": false, "old.pdf": true, "Old.pdf": false, "KEEP.TMP": true, "keep.tmp": false} {
		if got := w.Selects(rel); got != want {
			t.Errorf("%s: %v", rel, got)
		}
	}
}

// TestRejects checks that a rejection contains the pattern that leaves the file out.
func TestRejects(t *testing.T) {
	w := Filter{Include: []string{"*.pdf", "*.csv"}, Exclude: []string{"old-*", "drafts"}}
	for rel, want := range map[string]string{
		"a.pdf":          "",
		"a.pdf.PART":     "it is a download that is not finished (*.part); an include that names such files takes them",
		"x.download/a":   "it is a download that is not finished (*.download); an include that names such files takes them",
		"~$a.pdf":        "it is a lock or owner file of an office program (~$*); an include that names such files takes them",
		".git/a.pdf":     "it is in a hidden folder (.*)",
		"old-a.pdf":      "exclude leaves it out (old-*)",
		"x/Drafts/a.pdf": "exclude leaves it out (drafts)",
		"a.txt":          "no include matches its name (*.pdf, *.csv)",
	} {
		if got := w.Rejects(rel).String(); got != want {
			t.Errorf("%s: %q, want %q", rel, got, want)
		}
	}
}

// FuzzMatches checks that an exact match also matches without regard to case, that no pattern
// causes a panic, and that braces have the same meaning as in the matcher.
func FuzzMatches(f *testing.F) {
	for _, seed := range [][2]string{{"*.pdf", "SCAN.PDF"}, {"*.{tmp,csv}", "a.TMP"}, {"[A-z]*", "_a"}, {"a\\{b,c}", "a{b,c}"}, {"{a,{b,c}d}", "bd"}, {"[{]x,}", "{x,}"}, {"\u212a", "k"}, {"{", "{"}, {"{{{{", "a"}} {
		f.Add(seed[0], seed[1])
	}

	f.Fuzz(func(t *testing.T, wanted, name string) {
		if !doublestar.ValidatePattern(wanted) || !utf8.ValidString(wanted) || !utf8.ValidString(name) {
			t.Skip()
		}
		any, exact := Filter{Include: []string{wanted}}, Filter{Include: []string{wanted}, ExactCase: true}
		if exact.matches(wanted, name) && !any.matches(wanted, name) {
			t.Errorf("%q matches %q in no case", wanted, name)
		}
		if exact.Selects(name) && !any.Selects(name) {
			t.Errorf("%q selects %q in no case", wanted, name)
		}

		// A class may contain only one case. Without a class, case does not matter.
		if !strings.ContainsAny(wanted, "[\\") && any.matches(wanted, name) != any.matches(fold(wanted), fold(name)) {
			t.Errorf("%q and %q: case counts", wanted, name)
		}

		some := false
		for _, one := range alternatives(wanted) {
			some = some || pattern.Glob(one, name)
		}
		if got := pattern.Glob(wanted, name); got != some {
			t.Errorf("%q matches %q: %v; its alternatives %q: %v", wanted, name, got, alternatives(wanted), some)
		}
	})
}

func TestPrunes(t *testing.T) {
	w := Filter{Exclude: []string{"node_modules", "a/b", "*.csv"}}
	for rel, want := range map[string]bool{".": false, "x": false, "node_modules": true, "x/node_modules": true, "a/b": true, "a/b/c": true, "x/a/b": false, ".git": true, "x/.y/z": true} {
		if got := w.Prunes(rel); got != want {
			t.Errorf("%s: %v", rel, got)
		}
	}
}

// TestAlternatives checks that braces are expanded up to a limit. Escaped braces and braces in
// brackets are ordinary characters.
func TestAlternatives(t *testing.T) {
	for pattern, want := range map[string]string{
		"*.csv": "*.csv", "*.{csv,pdf}": "*.csv *.pdf", "{a,b}{c,d}": "ac ad bc bd", "{a,{b,c}d}e": "ae bde cde", "{,x}a": "a xa",
		`a\{b,c}`: `a\{b,c}`, "[{]x,y}": "[{]x,y}", "[]{a,b}": "[]a []b", "{a": "{a", "a}{b,c}": "a}b a}c", "a,{b,c}": "a,b a,c",
	} {
		if got := strings.Join(alternatives(pattern), " "); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}

	for n, want := range map[int]int{100: 100, maxAlternatives - 1: maxAlternatives - 1, maxAlternatives + 1: 1} {
		if got := len(alternatives("{a" + strings.Repeat(",a", n-1) + "}")); got != want {
			t.Errorf("%d choices: %d alternatives, want %d", n, got, want)
		}
	}
}

// TestFold checks that names that differ only in case are equal to a pattern, in any alphabet.
func TestFold(t *testing.T) {
	for name, want := range map[string]string{"abz": "abz", "AbZ": "abz", "A": "a", "Z": "z", "@[": "@[", "Ä": fold("ä"), "\u212a": "k", "ſ": "s", "Σ": fold("ς")} {
		if got := fold(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestIncludeOpensFolders checks that an include can open folders of unfinished downloads, but not
// hidden folders.
func TestIncludeOpensFolders(t *testing.T) {
	for _, c := range []struct {
		include, folder string
		pruned          bool
	}{
		{"", "x.download", true}, {"*.csv", "x.download", true}, {"x.download/*.csv", "x.download", false}, {"./x.download/*.csv", "x.download", false},
		{"a/*.DOWNLOAD/*", "a/x.download", false}, {"{a,b.part}/*", "b.part", false}, {"*.part/*", "x.download", true}, {".git/*", ".git", true}, {"", "./a", false}, {"", "a/./b", false},
	} {
		w := Filter{Include: strings.Fields(c.include)}
		if got := w.Prunes(c.folder); got != c.pruned {
			t.Errorf("include %q: %s is passed over: %t", c.include, c.folder, got)
		}
	}
}
