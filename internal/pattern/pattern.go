// Package pattern matches file names against globs. It also has regular expressions that are compiled at their first use.
//
// A program whose packages have a hundred of them would otherwise compile all whenever it starts, and it starts for each command of a person and
// each program that an agent runs, of which most ask none. What is wrong with an expression is found by a test (cmd/rouse).
package pattern

import (
	"regexp"
	"sync"
)

// Pattern is a regular expression. Its methods are those of regexp.Regexp, and may be called by many at a time.
type Pattern struct{ compiled func() *regexp.Regexp }

// New is the pattern of an expression, which must be a valid one.
func New(expression string) *Pattern {
	return &Pattern{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })}
}

// String is the expression.
func (p *Pattern) String() string { return p.compiled().String() }

// The rest does what regexp.Regexp does.

func (p *Pattern) Match(b []byte) bool                    { return p.compiled().Match(b) }
func (p *Pattern) MatchString(s string) bool              { return p.compiled().MatchString(s) }
func (p *Pattern) Find(b []byte) []byte                   { return p.compiled().Find(b) }
func (p *Pattern) FindIndex(b []byte) []int               { return p.compiled().FindIndex(b) }
func (p *Pattern) FindSubmatch(b []byte) [][]byte         { return p.compiled().FindSubmatch(b) }
func (p *Pattern) FindString(s string) string             { return p.compiled().FindString(s) }
func (p *Pattern) FindStringIndex(s string) []int         { return p.compiled().FindStringIndex(s) }
func (p *Pattern) FindStringSubmatch(s string) []string   { return p.compiled().FindStringSubmatch(s) }
func (p *Pattern) FindAllString(s string, n int) []string { return p.compiled().FindAllString(s, n) }
func (p *Pattern) FindAllStringIndex(s string, n int) [][]int {
	return p.compiled().FindAllStringIndex(s, n)
}

func (p *Pattern) FindAllStringSubmatch(s string, n int) [][]string {
	return p.compiled().FindAllStringSubmatch(s, n)
}
func (p *Pattern) ReplaceAll(src, by []byte) []byte { return p.compiled().ReplaceAll(src, by) }
func (p *Pattern) ReplaceAllString(src, by string) string {
	return p.compiled().ReplaceAllString(src, by)
}
func (p *Pattern) ReplaceAllLiteralString(src, by string) string {
	return p.compiled().ReplaceAllLiteralString(src, by)
}
func (p *Pattern) ReplaceAllStringFunc(src string, by func(string) string) string {
	return p.compiled().ReplaceAllStringFunc(src, by)
}
