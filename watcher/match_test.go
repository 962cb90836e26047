package watcher

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/internal/nofollow"
	"rouse/internal/pattern"
)

// OSA-92: hidden files, and what programs leave behind, are taken by those patterns alone that name them.
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
		w := Watch{Include: strings.Fields(c.include), Exclude: strings.Fields(c.exclude)}
		for _, rel := range strings.Fields(c.yes) {
			if !w.selects(rel) {
				t.Errorf("include %q, exclude %q: %s is not taken", c.include, c.exclude, rel)
			}
		}

		for _, rel := range strings.Fields(c.no) {
			if w.selects(rel) {
				t.Errorf("include %q, exclude %q: %s is taken", c.include, c.exclude, rel)
			}
		}
	}
}

// With case: exact a pattern counts as it is written; what programs leave behind is known in any case all the same.
func TestSelectsExactCase(t *testing.T) {
	w := Watch{Include: []string{"*.pdf", "KEEP.TMP"}, Exclude: []string{"Old*", "\u00dc*"}, ExactCase: true}
	for rel, want := range map[string]bool{"U\u0308.pdf": false, "u\u0308.pdf": true, "a.pdf": true, "SCAN.PDF": false, "old.pdf": true, "Old.pdf": false, "KEEP.TMP": true, "keep.tmp": false} {
		if got := w.selects(rel); got != want {
			t.Errorf("%s: %v", rel, got)
		}
	}
}

// A file that is left out says for which pattern.
func TestRejects(t *testing.T) {
	w := Watch{Include: []string{"*.pdf", "*.csv"}, Exclude: []string{"old-*", "drafts"}}
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
		if got := w.rejects(rel).text(); got != want {
			t.Errorf("%s: %q, want %q", rel, got, want)
		}
	}
}

// A pattern that matches as it is written matches in any case as well, none panics, and braces mean what the matcher
// takes them for.
func FuzzMatches(f *testing.F) {
	for _, seed := range [][2]string{{"*.pdf", "SCAN.PDF"}, {"*.{tmp,csv}", "a.TMP"}, {"[A-z]*", "_a"}, {"a\\{b,c}", "a{b,c}"}, {"{a,{b,c}d}", "bd"}, {"[{]x,}", "{x,}"}, {"\u212a", "k"}, {"{", "{"}, {"{{{{", "a"}} {
		f.Add(seed[0], seed[1])
	}

	f.Fuzz(func(t *testing.T, wanted, name string) {
		if !doublestar.ValidatePattern(wanted) || !utf8.ValidString(wanted) || !utf8.ValidString(name) {
			t.Skip()
		}
		any, exact := Watch{Include: []string{wanted}}, Watch{Include: []string{wanted}, ExactCase: true}
		if exact.matches(wanted, name) && !any.matches(wanted, name) {
			t.Errorf("%q matches %q in no case", wanted, name)
		}
		if exact.selects(name) && !any.selects(name) {
			t.Errorf("%q selects %q in no case", wanted, name)
		}

		// A class may name one case alone; without one no case counts.
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
	w := Watch{Exclude: []string{"node_modules", "a/b", "*.csv"}}
	for rel, want := range map[string]bool{".": false, "x": false, "node_modules": true, "x/node_modules": true, "a/b": true, "a/b/c": true, "x/a/b": false, ".git": true, "x/.y/z": true} {
		if got := w.prunes(rel); got != want {
			t.Errorf("%s: %v", rel, got)
		}
	}
}

// What cannot work is refused by a sentence that names the job and what to do.
func TestValidated(t *testing.T) {
	dir := t.TempDir()
	good := Watch{Job: "in", Path: dir}
	for want, change := range map[string]func(*Watch){
		"not an absolute path": func(w *Watch) { w.Path = "inbox" },
		"existing is":          func(w *Watch) { w.Existing = "maybe" },
		"pattern \"[\"":        func(w *Watch) { w.Include = []string{"["} },
		"on_success is":        func(w *Watch) { w.OnSuccess.Action = "burn" },
		"on_failure moves to \"\"": func(w *Watch) {
			w.OnFailure = After{Action: "move"}
		},
		"the watched folder itself": func(w *Watch) { w.OnSuccess = After{Action: "move", Dir: dir + string(filepath.Separator)} },
	} {
		w := good
		change(&w)
		if _, err := validated([]Watch{w}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "job in: ") {
			t.Errorf("want %q, got %v", want, err)
		}
	}

	if _, err := validated([]Watch{good, good}); err == nil {
		t.Error("two watches of one job were taken")
	}

	got, err := validated([]Watch{good})
	if err != nil || got[0].Settle != time.Second || got[0].Existing != ExistingProcess {
		t.Errorf("%+v (%v)", got, err)
	}
}

// What is not set is as it is told to be, and what is set stays.
func TestWatchDefaults(t *testing.T) {
	for _, c := range []struct{ watch, want Watch }{
		{Watch{}, Watch{Mode: ModePerFile, Settle: time.Second, MaxWait: 30 * time.Second, MaxFiles: 500, Existing: ExistingProcess}},
		{Watch{Mode: ModeBatch}, Watch{Mode: ModeBatch, Settle: time.Second, MaxWait: 30 * time.Second, MaxFiles: 500, Existing: ExistingIgnore}},
		{Watch{Mode: ModeConverge}, Watch{Mode: ModeConverge, Settle: time.Second, MaxWait: 30 * time.Second, MaxFiles: 500, Existing: ExistingIgnore}},
		{Watch{Settle: -1, MaxWait: -1, MaxFiles: -1}, Watch{Mode: ModePerFile, Settle: time.Second, MaxWait: 30 * time.Second, MaxFiles: 500, Existing: ExistingProcess}},
		{Watch{Settle: 1, MaxWait: 1, MaxFiles: 1, Existing: ExistingIgnore}, Watch{Mode: ModePerFile, Settle: 1, MaxWait: 1, MaxFiles: 1, Existing: ExistingIgnore}},
	} {
		c.watch.Path, c.want.Path = filepath.FromSlash("/in/"), filepath.FromSlash("/in")
		if c.watch.setDefaults(); !c.watch.equal(c.want) {
			t.Errorf("%+v, want %+v", c.watch, c.want)
		}
	}
}

// A watch of a folder as a whole has no files that it could do something with after its run; to leave them is no such thing.
func TestConvergeHasNoFilesToMove(t *testing.T) {
	for _, c := range []struct {
		mode, success, failure string
		refused                bool
	}{
		{ModeConverge, "", "", false}, {ModeConverge, actionLeave, actionLeave, false},
		{ModeConverge, actionDelete, "", true}, {ModeConverge, "", actionDelete, true}, {ModeConverge, actionLeave, actionMove, true},
		{ModePerFile, actionDelete, actionDelete, false}, {ModeBatch, actionDelete, actionLeave, false}, {"each", "", "", true},
	} {
		w := Watch{Job: "in", Path: t.TempDir(), Mode: c.mode, OnSuccess: After{Action: c.success}, OnFailure: After{Action: c.failure}}
		if _, err := validated([]Watch{w}); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Each setting of a watch counts when it is compared with what is at work: a watch that has changed begins with a scan.
func TestWatchEqual(t *testing.T) {
	one := Watch{Job: "in", Agent: "a", Path: "/in", Include: []string{"*.csv"}, Exclude: []string{"old"}, Mode: ModeBatch, Settle: time.Second, MaxWait: time.Minute, MaxFiles: 3, Existing: ExistingIgnore}
	same := one
	if !one.equal(same) {
		t.Error("a watch is not equal to itself")
	}
	for name, change := range map[string]func(w *Watch){
		"Job": func(w *Watch) { w.Job = "x" }, "Agent": func(w *Watch) { w.Agent = "x" }, "Path": func(w *Watch) { w.Path = "/x" },
		"Include": func(w *Watch) { w.Include = nil }, "Exclude": func(w *Watch) { w.Exclude = nil }, "ExactCase": func(w *Watch) { w.ExactCase = true },
		"Recursive": func(w *Watch) { w.Recursive = true }, "FollowSymlinks": func(w *Watch) { w.FollowSymlinks = true }, "Definition": func(w *Watch) { w.Definition = "x" },
		"TakeOpen": func(w *Watch) { w.TakeOpen = true }, "OwnFolder": func(w *Watch) { w.OwnFolder = "/x" }, "Mode": func(w *Watch) { w.Mode = ModePerFile },
		"Settle": func(w *Watch) { w.Settle++ }, "MaxWait": func(w *Watch) { w.MaxWait++ }, "MaxFiles": func(w *Watch) { w.MaxFiles++ }, "Existing": func(w *Watch) { w.Existing = ExistingProcess },
		"OnSuccess": func(w *Watch) { w.OnSuccess.Action = actionLeave }, "OnFailure": func(w *Watch) { w.OnFailure.Dir = "/x" },
		"Collect":  func(w *Watch) { w.Collect.When = "x" },
		"Boundary": func(w *Watch) { w.Boundary = nofollow.NewBoundary("/x") },
	} {
		other := one
		if change(&other); one.equal(other) {
			t.Errorf("another %s is not noticed", name)
		}
	}

	d := newHarness(t)
	outer, inner := Watch{Job: "in", Path: d.path("inbox")}, Watch{Job: "inner", Path: d.path("inbox/a")}
	set := func(watches ...Watch) *folder {
		d.must(d.w.Set(t.Context(), watches))
		return d.w.folders["in"]
	}
	if f := set(outer, inner); set(outer, inner) != f || set(outer) == f {
		t.Error("the folders that others watch inside it do not count")
	}
}

// Braces stand for what is in them, up to a bound; an escaped one, or one in brackets, is a character.
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

// Names that differ in case alone are the same to a pattern, whatever the letters are.
func TestFold(t *testing.T) {
	for name, want := range map[string]string{"abz": "abz", "AbZ": "abz", "A": "a", "Z": "z", "@[": "@[", "Ä": fold("ä"), "\u212a": "k", "ſ": "s", "Σ": fold("ς")} {
		if got := fold(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// An include that names folders of unfinished downloads on its way opens them, and no hidden one.
func TestIncludeOpensFolders(t *testing.T) {
	for _, c := range []struct {
		include, folder string
		pruned          bool
	}{
		{"", "x.download", true}, {"*.csv", "x.download", true}, {"x.download/*.csv", "x.download", false}, {"./x.download/*.csv", "x.download", false},
		{"a/*.DOWNLOAD/*", "a/x.download", false}, {"{a,b.part}/*", "b.part", false}, {"*.part/*", "x.download", true}, {".git/*", ".git", true}, {"", "./a", false}, {"", "a/./b", false},
	} {
		w := Watch{Include: strings.Fields(c.include)}
		if got := w.prunes(c.folder); got != c.pruned {
			t.Errorf("include %q: %s is passed over: %t", c.include, c.folder, got)
		}
	}
}

func TestNumbered(t *testing.T) {
	long := strings.Repeat("ä", 125) + ".csv"
	for _, c := range []struct {
		name string
		i    int
		want string
	}{
		{"a.csv", 0, "a.csv"}, {"a.csv", 1, "a-2.csv"}, {"a.tar.gz", 2, "a.tar-3.gz"}, {"a", 1, "a-2"}, {".env", 1, ".env-2"},
		{long, 0, long}, {long, 1, strings.Repeat("ä", 124) + "-2.csv"},
	} {
		if got := numbered(c.name, c.i); got != c.want || len(got) > maxName {
			t.Errorf("%s, %d: %s", c.name, c.i, got)
		}
	}
}
