// Command words measures the English of the comments and of the pages in docs, by the rules of
// docs/dev/style.md. Without flags it prints a table of the tree, or of the paths it is given.
//
//	go run ./.ci/words -check   also fails if a limit is exceeded
//	go run ./.ci/words -list    also lists each comment and line over a limit
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// rate is a group of words that is measured per 1,000 words of comments.
type rate struct {
	name  string
	words []string
	least float64 // 0 for no lower limit
	most  float64 // 0 for no upper limit
}

var rates = []rate{
	{name: "what", words: []string{"what"}, most: 2},
	{name: "say, says, said", words: []string{"say", "says", "said"}, most: 1},
	{name: "nobody, none, nothing", words: []string{"nobody", "none", "nothing"}, most: 1.5},
	{name: "who, whose", words: []string{"who", "whose", "whom"}, most: 0.5},
	{name: "if", words: []string{"if"}, least: 6},
	{name: "return, returns", words: []string{"return", "returns"}, least: 5},
	{name: "error, errors", words: []string{"error", "errors"}, least: 2.5},
}

const (
	commentColumns = 100
	codeColumns    = 140
	mostIsWhat     = 1.0 // percent of doc comments that begin with "X is what", "X says who" and the like
	mostMedian     = 14  // words of a sentence

	// mostLongLines is the number of code lines over codeColumns. Lower it when you break lines.
	mostLongLines = 2282
)

var (
	wordRE     = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
	sentenceRE = regexp.MustCompile(`[.!?:;](?:\s|$)`)
	isWhatRE   = regexp.MustCompile(`^(?:is|are|says|say|has|tells) (?:what|who|how|whose|where|which|whether|whom)\b`)
)

// text holds the measurements of some text.
type text struct {
	words     map[string]int
	total     int
	sentences []int // number of words of each sentence
}

func (t *text) add(s string) {
	if t.words == nil {
		t.words = map[string]int{}
	}
	for _, w := range wordRE.FindAllString(s, -1) {
		t.words[strings.ToLower(w)]++
		t.total++
	}
	for _, one := range sentenceRE.Split(s, -1) {
		if n := len(wordRE.FindAllString(one, -1)); n > 2 {
			t.sentences = append(t.sentences, n)
		}
	}
}

func (t *text) per1000(words []string) float64 {
	n := 0
	for _, w := range words {
		n += t.words[w]
	}
	return 1000 * float64(n) / float64(max(t.total, 1))
}

func (t *text) median() int {
	if len(t.sentences) == 0 {
		return 0
	}
	slices.Sort(t.sentences)
	return t.sentences[len(t.sentences)/2]
}

// findings counts the faults of comments and lines.
type findings struct {
	list                                        bool // print each one
	docs, isWhat, otherStart, longComment, long int
}

// at prints a fault if a list is requested.
func (f *findings) at(where token.Position, fault string) {
	if f.list {
		fmt.Printf("%s:%d: %s\n", where.Filename, where.Line, fault)
	}
}

func main() {
	check := flag.Bool("check", false, "fail if a limit is exceeded")
	list := flag.Bool("list", false, "name each place")
	flag.Parse()

	files, err := measured(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var comments, pages text
	f := findings{list: *list}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		switch {
		case filepath.Ext(name) == ".md":
			if !strings.HasPrefix(name, "docs/reference/") {
				pages.add(prose(string(b)))
			}
		case strings.HasSuffix(name, "_test.go"), strings.Contains(string(b[:min(len(b), 200)]), "DO NOT EDIT"):
		default:
			if err := f.file(name, b, &comments); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(2)
			}
		}
	}

	failed := false
	row := func(name string, limit string, bad bool, in ...float64) {
		mark := ""
		if bad {
			mark, failed = "  too much or too little", true
		}
		fmt.Printf("%-34s", name)
		for _, n := range in {
			fmt.Printf(" %9.1f", n)
		}
		fmt.Printf("   %s%s\n", limit, mark)
	}
	fmt.Printf("%-34s %9s %9s   limit\n", "per 1,000 words", "comments", "docs")
	for _, r := range rates {
		c, p := comments.per1000(r.words), pages.per1000(r.words)
		limit := fmt.Sprintf("at most %g", r.most)
		bad := c > r.most || p > r.most
		if r.least > 0 {
			limit, bad = fmt.Sprintf("at least %g in comments", r.least), c < r.least
		}
		row(r.name, limit, bad, c, p)
	}
	row("median sentence, words", fmt.Sprintf("at most %d", mostMedian), comments.median() > mostMedian || pages.median() > mostMedian, float64(comments.median()), float64(pages.median()))
	percent := 100 * float64(f.isWhat) / float64(max(f.docs, 1))
	row("doc comments \"X is what …\", %", fmt.Sprintf("at most %g", mostIsWhat), percent > mostIsWhat, percent)
	row("doc comments without the name", "none", f.otherStart > 0, float64(f.otherStart))
	row(fmt.Sprintf("comment lines over %d columns", commentColumns), "none", f.longComment > 0, float64(f.longComment))
	row(fmt.Sprintf("code lines over %d columns", codeColumns), fmt.Sprintf("at most %d", mostLongLines), f.long > mostLongLines, float64(f.long))
	fmt.Printf("%-34s %9d %9d\n", "words", comments.total, pages.total)
	fmt.Printf("%-34s %9d\n", "doc comments", f.docs)
	if *check && failed {
		os.Exit(1)
	}
}

// measured returns the files below the given paths, or below the working directory. It skips hidden
// folders and test data.
func measured(paths []string) (files []string, err error) {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for _, root := range paths {
		err = errors.Join(err, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			switch ext := filepath.Ext(name); {
			case err != nil:
				return err
			case d.IsDir():
				if name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
					return fs.SkipDir
				}
			case ext == ".go", ext == ".md" && (strings.HasPrefix(name, "docs/") || name == "README.md"):
				files = append(files, name)
			}
			return nil
		}))
	}
	return files, err
}

var (
	fenceRE = regexp.MustCompile("(?ms)^```.*?^```$")
	codeRE  = regexp.MustCompile("`[^`]*`")
	linkRE  = regexp.MustCompile(`\]\([^)]*\)`)
)

// prose returns the text of a page without its code, and with the cells of tables as sentences.
func prose(page string) string {
	page = fenceRE.ReplaceAllString(page, "")
	page = codeRE.ReplaceAllString(page, "x")
	page = linkRE.ReplaceAllString(page, "]")
	page = strings.NewReplacer("|", " . ", "\n\n", " . ", "\n#", " . ", "\n-", " . ").Replace(page)
	return page
}

// file measures a Go file.
func (f *findings) file(name string, src []byte, comments *text) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	inComment := map[int]bool{}
	for _, g := range file.Comments {
		for l := fset.Position(g.Pos()).Line; l <= fset.Position(g.End()).Line; l++ {
			inComment[l] = true
		}
		comments.add(codeRE.ReplaceAllString(g.Text(), "x"))
	}
	for i, line := range strings.Split(string(src), "\n") {
		width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
		whole := strings.HasPrefix(strings.TrimSpace(line), "//")
		switch where := (token.Position{Filename: name, Line: i + 1}); {
		case whole && width > commentColumns && !strings.HasPrefix(strings.TrimSpace(line), "//nolint") && !strings.Contains(line, "://"):
			f.longComment++
			f.at(where, "a comment line of more than 100 columns")
		case !whole && width > codeColumns && !strings.Contains(line, "`"):
			f.long++
			f.at(where, "a line of more than 140 columns")
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			f.doc(fset, d.Name.Name, d.Doc)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					f.doc(fset, s.Name.Name, or(s.Doc, d.Doc))
				case *ast.ValueSpec:
					if !d.Lparen.IsValid() {
						f.doc(fset, s.Names[0].Name, or(s.Doc, d.Doc))
					}
				}
			}
		}
	}
	return nil
}

func or(a, b *ast.CommentGroup) *ast.CommentGroup {
	if a != nil {
		return a
	}
	return b
}

// doc checks the doc comment of an identifier.
func (f *findings) doc(fset *token.FileSet, name string, g *ast.CommentGroup) {
	if g == nil {
		return
	}
	s := g.Text()
	if strings.TrimSpace(s) == "" {
		return // a directive
	}
	f.docs++
	first, rest, _ := strings.Cut(s, " ")
	if first == "A" || first == "An" || first == "The" {
		first, rest, _ = strings.Cut(rest, " ")
	}
	if strings.TrimRight(first, ",:.'s") != strings.TrimRight(name, "s") && !strings.HasPrefix(s, "Deprecated:") {
		f.otherStart++
		f.at(fset.Position(g.Pos()), "the doc comment does not begin with "+name)
	}
	if isWhatRE.MatchString(rest) {
		f.isWhat++
		f.at(fset.Position(g.Pos()), name+" "+strings.SplitN(rest, "\n", 2)[0])
	}
}
