package file

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/agent/tool"
	"rouse/internal/pattern"
	"rouse/internal/text"
)

var (
	//go:embed search.md
	searchText string

	searchSpec = reading("file_search", searchText, tool.ClassSearch, tool.Spec{
		Core: true, Enum: map[string][]string{"target": {"content", "files"}}, Example: `{"pattern":"**/*.csv","target":"files"}`,
	})
)

// Limits of a search, for both file_search and search.
const (
	defaultMatches = 50
	maxMatches     = 500
	searchTimeout  = 30 * time.Second
	maxMatchLine   = 300 // characters shown of a line
	maxSkipped     = 10  // files named in the result
)

type match struct {
	Path string `json:"path"` // usable as an argument
	Line int    `json:"line,omitempty"`
	Text string `json:"text,omitempty"`
	fileFacts
}

type searchResult struct {
	Kind     string   `json:"kind"` // matches
	Target   string   `json:"target"`
	Matches  []match  `json:"matches"`
	Total    int      `json:"total_matches"`
	Searched int      `json:"files_searched"`
	Cut      bool     `json:"truncated"`
	Skipped  *skipped `json:"skipped,omitempty"`
}

// skipped counts the files that were not searched and names some of them.
type skipped struct {
	Binary     int      `json:"binary,omitempty"`
	Large      int      `json:"larger_than_5_mib,omitempty"`
	Secret     int      `json:"secret,omitempty"`
	Unreadable int      `json:"unreadable,omitempty"`
	Some       []string `json:"some,omitempty"` // names, without binary files
}

type searchArgs struct {
	Pattern     string `json:"pattern"`
	Target      string `json:"target,omitempty"`
	Path        string `json:"path,omitempty"`
	FilePattern string `json:"file_pattern,omitempty" jsonschema:"glob like *.go"`
	MaxResults  int    `json:"max_results,omitempty"`
	Since       string `json:"since,omitempty" jsonschema:"a time or 24h"`
}

func (f *files) fileSearch(ctx context.Context, _ tool.Invocation, a searchArgs) (tool.Envelope, error) {
	s := &search{redact: f.redact, path: a.Path, glob: a.FilePattern, limit: a.MaxResults, names: a.Target == "files"}
	err := checkPattern(a.Pattern, "file_pattern", a.FilePattern)
	if err == nil {
		s.since, err = f.parseSince(a.Since)
	}
	if err != nil {
		return tool.Envelope{}, err
	}

	if s.names {
		s.name = nameMatcher(a.Pattern)
	} else if s.find, err = newRegexpMatcher(regexp.QuoteMeta(a.Pattern), false); err != nil {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the pattern cannot be searched for: %v", err).WithField("pattern", "")
	}
	res, warnings, err := f.search(ctx, s)
	if err != nil {
		return failureOf(a.Path, err)
	}
	return tool.Success(res, warnings...), nil
}

// checkPattern returns an error if the pattern or the glob is invalid.
func checkPattern(pattern, field, glob string) error {
	switch {
	case strings.ContainsAny(pattern, "\n\x00"):
		return tool.Refuse(tool.KindInvalidArgs, "the pattern holds a line break or a NUL character; a search looks at one line at a time").WithField("pattern", "a part of one line")
	case !validGlob(glob):
		return tool.Refuse(tool.KindInvalidArgs, "%s %q is not a glob", field, glob).WithField(field, "a glob like *.go or src/**/*.ts")
	case strings.TrimSpace(pattern) == "":
		return tool.Refuse(tool.KindInvalidArgs, "the pattern is empty").WithField("pattern", "")
	}
	return nil
}

// nameMatcher returns a function that matches paths. wanted is a glob or a part of the path.
func nameMatcher(wanted string) func(rel string) bool {
	if strings.ContainsAny(wanted, "*?[") && validGlob(wanted) {
		return globMatcher(wanted)
	}
	wanted = strings.ToLower(pattern.Name(wanted))
	return func(rel string) bool { return strings.Contains(strings.ToLower(pattern.Name(rel)), wanted) }
}

// search is one search by either tool.
type search struct {
	redact     func(string) string // applied before a line is cut
	path, glob string
	limit      int
	names      bool
	name       func(rel string) bool // set if names is true
	find       *lineMatcher          // set if names is false
	wanted     func(rel string) bool // matcher of glob
	since      time.Time             // older files are omitted
	facts      func(fs.FileInfo) fileFacts

	res    searchResult
	buffer bytes.Buffer // content of the current file
}

// search searches a folder or one file. It returns the first matches by path and line, and the
// number of all matches.
func (f *files) search(ctx context.Context, s *search) (*searchResult, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()

	s.path, s.limit = cmp.Or(s.path, "."), min(cmp.Or(max(s.limit, 0), defaultMatches), maxMatches)
	s.wanted, s.facts = globMatcher(s.glob), f.facts
	s.res = searchResult{Kind: "matches", Target: "content", Matches: []match{}, Skipped: &skipped{}}
	if s.names {
		s.res.Target = "files"
	}

	shown := filepath.ToSlash(s.path)
	w, err := f.walkPath(ctx, s.path, 0, func(at walkedFile) { s.visit(at, shown) })
	if err != nil {
		return nil, nil, err
	}

	// A folder's files are visited before its subfolders, so the first matches are known only now.
	s.trim()
	res := &s.res
	res.Cut = res.Total > len(res.Matches) || w.incomplete
	slices.Sort(res.Skipped.Some)
	if sk := res.Skipped; sk.Binary+sk.Large+sk.Secret+sk.Unreadable == 0 {
		res.Skipped = nil
	}

	warnings := w.unreadWarning()
	if w.incomplete {
		warnings = append(warnings, fmt.Sprintf("the search was ended after %d entries or %s, so there may be more; search a smaller folder", w.walked, searchTimeout))
	}

	return res, warnings, nil
}

func (s *search) visit(at walkedFile, shown string) {
	rel := at.rel
	within := path.Join(at.walk.within, rel)
	// "." is a file named by the call. The glob does not apply to it, and OpenChecked has checked
	// access.
	if rel != "." && (!s.wanted(rel) || at.walk.isHidden(within)) {
		return
	}

	var info fs.FileInfo
	if named := s.names && s.name(rel); named || !s.names && !s.since.IsZero() {
		var err error
		if info, err = at.dir.Lstat(at.name); err != nil || info.ModTime().Before(s.since) {
			return // removed meanwhile, or too old
		}
	}
	if s.names {
		s.res.Searched++
		if info != nil {
			s.add([]match{{Path: path.Join(shown, rel), fileFacts: s.facts(info)}}, 1)
		}
		return
	}

	where := path.Join(shown, rel)
	if rel != "." && tool.IsSecretPath(within) {
		s.skip(where, func(sk *skipped) { sk.Secret++ })
		return
	}

	text, err := at.read(&s.buffer)
	switch {
	case errors.Is(err, errLarge):
		s.skip(where, func(sk *skipped) { sk.Large++ })
		return
	case err != nil:
		s.skip(where, func(sk *skipped) { sk.Unreadable++ })
		return
	}

	text, is := searchable(text)
	if !is { // not named, because there may be very many
		s.res.Skipped.Binary++
		return
	}

	s.res.Searched++
	var some []match
	total := 0
	s.find.each(text, func(number int, line []byte) {
		if total++; len(some) < s.limit {
			some = append(some, match{Path: where, Line: number, Text: s.truncateLine(line)})
		}
	})
	s.add(some, total)
}

// searchable returns the text of a file, and reports whether it is text. It returns the content
// unchanged if the file is damaged or has an unknown encoding.
func searchable(content []byte) ([]byte, bool) {
	if isUTF16 := bytes.HasPrefix(content, []byte("\xff\xfe")) || bytes.HasPrefix(content, []byte("\xfe\xff")); !isUTF16 {
		if isBinary(content) {
			return nil, false
		}
		if utf8.Valid(content) {
			return bytes.TrimPrefix(content, []byte("\ufeff")), true // the byte order mark is not part of the first line
		}
	}

	if text, _, is := decode(string(content)); is {
		return []byte(text), true
	}
	return content, !isBinary(content)
}

var (
	errLarge         = errors.New("too large")
	errNotSearchable = errors.New("not a regular file any more, or one with a second hard link")
)

// read returns the content of a file. The next call overwrites the returned bytes.
func (at walkedFile) read(buf *bytes.Buffer) ([]byte, error) {
	f, err := openToRead(at.dir, at.name)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNotSearchable
	case at.walk.outside && !tool.HasOneLink(f):
		return nil, errNotSearchable
	case info.Size() > maxRaw:
		return nil, errLarge
	}

	buf.Reset()
	_, err = io.Copy(buf, io.LimitReader(f, maxRaw))
	return buf.Bytes(), err
}

func (s *search) skip(where string, count func(*skipped)) {
	count(s.res.Skipped)
	if len(s.res.Skipped.Some) < maxSkipped {
		s.res.Skipped.Some = append(s.res.Skipped.Some, where)
	}
}

func (s *search) add(some []match, total int) {
	s.res.Total += total
	// Trimmed from time to time to limit memory.
	if s.res.Matches = append(s.res.Matches, some...); len(s.res.Matches) > 8*s.limit {
		s.trim()
	}
}

// trim keeps only the first matches by path and line.
func (s *search) trim() {
	slices.SortFunc(s.res.Matches, func(a, b match) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	s.res.Matches = s.res.Matches[:min(len(s.res.Matches), s.limit)]
}

// truncateLine shortens a line for the result.
func (s *search) truncateLine(line []byte) string {
	if len(line) <= maxMatchLine {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}

	// The line is cut before it is copied, because it may be the whole file. It is redacted before
	// the final cut.
	enough := utf8.UTFMax * (maxMatchLine + 1)
	if len(line) <= enough+spare {
		return text.Truncate(s.redact(string(line)), maxMatchLine)
	}
	return text.Truncate(text.RedactedHead(string(line[:enough+spare]), spare, s.redact)+"…", maxMatchLine)
}

// spare is the number of bytes after a cut that are searched for a secret crossing the cut.
const spare = 4 << 10

const searchAliasText = "Find lines in files by a regular expression (RE2), one line at a time. `include` is a glob of the files; capitals do not matter unless `case_sensitive`. Hidden files, node_modules, and what .gitignore names are left out."

type searchAliasArgs struct {
	Pattern       string `json:"pattern" jsonschema:"a regular expression"`
	Path          string `json:"path,omitempty"`
	Include       string `json:"include,omitempty" jsonschema:"glob of the files to search"`
	CaseSensitive bool   `json:"case_sensitive,omitempty"`
}

// searchAlias implements search, which takes a regular expression and returns lines of text.
func (f *files) searchAlias(ctx context.Context, _ tool.Invocation, a searchAliasArgs) (tool.Envelope, error) {
	if err := checkPattern(a.Pattern, "include", a.Include); err != nil {
		return tool.Envelope{}, err
	}
	find, err := newRegexpMatcher(a.Pattern, a.CaseSensitive)
	if err != nil {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the pattern is no regular expression: %v", err).WithField("pattern", "a regular expression of Go (RE2)")
	}
	res, warnings, err := f.search(ctx, &search{redact: f.redact, path: a.Path, glob: a.Include, find: find})
	if err != nil {
		return failureOf(a.Path, err)
	}

	var text strings.Builder
	for _, m := range res.Matches {
		fmt.Fprintf(&text, "%s:%d:%s\n", quotePath(m.Path), m.Line, m.Text)
	}
	if res.Total == 0 {
		text.WriteString("no matches\n")
	} else if res.Cut {
		fmt.Fprintf(&text, "[%d of %d matches]\n", len(res.Matches), res.Total)
	}

	out := map[string]any{"text": text.String(), "matches": res.Total, "files_searched": res.Searched, "truncated": res.Cut}
	if res.Skipped != nil {
		out["skipped"] = res.Skipped
	}
	return tool.Success(out, warnings...), nil
}

// quotePath quotes a path with a line break, which would look like two paths.
func quotePath(path string) string {
	if strings.ContainsAny(path, "\n\r") {
		return strconv.Quote(path)
	}
	return path
}

func validGlob(glob string) bool { return doublestar.ValidatePattern(glob) }

// globMatcher returns a function that matches paths with a glob. The glob is compared with file
// names, or with whole paths if it has a slash. It ignores case. An empty glob matches all paths.
func globMatcher(glob string) func(rel string) bool {
	if glob == "" {
		return func(string) bool { return true }
	}

	glob = strings.ToLower(glob)
	whole := strings.Contains(glob, "/")
	return func(rel string) bool {
		if !whole {
			rel = rel[strings.LastIndexByte(rel, '/')+1:]
		}
		return pattern.Glob(glob, strings.ToLower(rel))
	}
}

// lineMatcher finds the lines of a text that match a regular expression.
type lineMatcher struct {
	line *regexp.Regexp
	// literal is a lower-case string that occurs in every match. A text without it is not searched
	// line by line.
	literal []byte
}

// newRegexpMatcher returns a matcher for a regular expression.
func newRegexpMatcher(pattern string, caseSensitive bool) (*lineMatcher, error) {
	re, err := regexp.Compile(pattern)
	if err != nil || caseSensitive {
		return &lineMatcher{line: re}, err
	}

	// Case-insensitive expressions are slow. The literal excludes s and non-ASCII letters, because
	// bytes.ToLower does not fold all of their forms.
	literal, _ := re.LiteralPrefix()
	m := &lineMatcher{}
	for part := range strings.FieldsFuncSeq(strings.ToLower(literal), func(r rune) bool { return r > 127 || r == 's' }) {
		if len(part) > len(m.literal) {
			m.literal = []byte(part)
		}
	}
	m.line, err = regexp.Compile("(?i)" + pattern)
	return m, err
}

// each calls give with every matching line and its number from 1.
func (m *lineMatcher) each(text []byte, give func(number int, line []byte)) {
	if len(m.literal) > 0 && !bytes.Contains(bytes.ToLower(text), m.literal) {
		return
	}

	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if m.line.Match(line) {
			give(number, line)
		}
	}
}
