package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// mutant is one change of the code.
type mutant struct {
	id       int
	at       token.Position
	from, to string
}

// String is the mutant's line in the report.
func (m mutant) String() string {
	return fmt.Sprintf("%s:%d:%d %s to %s", filepath.Base(m.at.Filename), m.at.Line, m.at.Column, m.from, m.to)
}

// edit is text that is put between two places of a file, in place of what stands there.
type edit struct {
	from, to int // offsets of bytes
	text     string
	order    int // of edits at one place
}

// switcher writes mutants into a file, each behind its switch.
type switcher struct {
	fset    *token.FileSet
	info    *types.Info
	mutants []mutant
	source  []byte // of the file that is being written
	edits   []edit
}

// switched writes the package's files again, with a switch for each mutant, and returns the overlay that puts them
// in the place of the real ones. Code that is generated has no mutants.
func (p listed) switched(only []string, work string) (mutants []mutant, overlay string, err error) {
	s := &switcher{fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	files := map[string]*ast.File{}
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(s.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, "", err
		}
		parsed = append(parsed, f)
		if !ast.IsGenerated(f) && (len(only) == 0 || slices.Contains(only, name)) {
			files[name] = f
		}
	}

	open := func(path string) (io.ReadCloser, error) { return os.Open(p.exports[path]) }
	check := types.Config{Importer: importer.ForCompiler(s.fset, "gc", open)}
	if _, err := check.Check(p.ImportPath, s.fset, parsed, s.info); err != nil {
		return nil, "", err
	}

	replace := map[string]string{}
	put := func(name string, text []byte) error {
		path := filepath.Join(work, name)
		replace[filepath.Join(p.Dir, name)] = path
		return os.WriteFile(path, text, 0o600)
	}
	for _, name := range p.GoFiles { // in their order, so that a mutant keeps its number
		if files[name] == nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, "", err
		}
		if err := put(name, s.file(files[name], text)); err != nil {
			return nil, "", err
		}
	}

	if err := put("mutants_switch.go", []byte("package "+p.Name+"\n"+switches)); err != nil {
		return nil, "", err
	}
	overlay, err = writeOverlay(work, replace)
	return s.mutants, overlay, err
}

// file returns a file's text with the switches of its mutants.
func (s *switcher) file(f *ast.File, text []byte) []byte {
	s.source, s.edits = text, nil
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.ArrayType: // its length is a constant
			return false
		case *ast.BinaryExpr:
			s.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.SUB && s.info.Types[n].Value == nil {
				s.wrap(n, fmt.Sprintf("mutantMinus(%d, ", s.add(n.OpPos, "-", "+")), ")")
			}
		case *ast.IncDecStmt:
			other := map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok]
			assign := map[token.Token]string{token.INC: "+=", token.DEC: "-="}[n.Tok]
			id := s.add(n.TokPos, n.Tok.String(), other)
			s.replace(n.TokPos, 2, fmt.Sprintf(" %s mutantStep(%d, %s, 1)", assign, id, s.text(n.X)))
		case *ast.AssignStmt:
			if n.Tok == token.ADD_ASSIGN && s.number(n.Lhs[0]) || n.Tok == token.SUB_ASSIGN {
				other := map[token.Token]string{token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+="}[n.Tok]
				s.wrap(n.Rhs[0], fmt.Sprintf("mutantStep(%d, %s, ", s.add(n.TokPos, n.Tok.String(), other), s.text(n.Lhs[0])), ")")
			}
		}
		return true
	})

	// Where two begin at one place, the outer one was met first; where two end, it was met first as well and closes last.
	slices.SortStableFunc(s.edits, func(a, b edit) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.order - b.order
	})
	var out bytes.Buffer
	at := 0
	for _, e := range s.edits {
		out.Write(text[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(text[at:])
	return out.Bytes()
}

// binary switches the mutants of an expression with two sides.
func (s *switcher) binary(n *ast.BinaryExpr) {
	if s.info.Types[n].Value != nil && !named(n.X) && !named(n.Y) {
		return // without a type of its own until it is used
	}

	op := n.Op.String()
	switch n.Op {
	case token.LAND, token.LOR:
		// By De Morgan, a && b is !(!a || !b).
		other := map[token.Token]string{token.LAND: "||", token.LOR: "&&"}[n.Op]
		on := fmt.Sprintf(" != mutantOn(%d))", s.add(n.OpPos, op, other))
		s.wrap(n, "((", ")"+on)
		s.wrap(n.X, "((", ")"+on)
		s.wrap(n.Y, "((", ")"+on)
	case token.EQL, token.NEQ:
		other := map[token.Token]string{token.EQL: "!=", token.NEQ: "=="}[n.Op]
		s.wrap(n, "((", fmt.Sprintf(") != mutantOn(%d))", s.add(n.OpPos, op, other)))
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		edge := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[n.Op]
		opposite := map[token.Token]string{token.LSS: ">=", token.LEQ: ">", token.GTR: "<=", token.GEQ: "<"}[n.Op]
		name := map[token.Token]string{token.LSS: "Less", token.LEQ: "LessOrEqual", token.GTR: "Greater", token.GEQ: "GreaterOrEqual"}[n.Op]
		s.wrap(n, fmt.Sprintf("mutant%s(%d, %d, ", name, s.add(n.OpPos, op, edge), s.add(n.OpPos, op, opposite)), ")")
		s.replace(n.OpPos, len(op), ",")
	case token.ADD, token.SUB, token.MUL, token.QUO, token.REM:
		if !s.number(n) {
			return // texts
		}
		other := map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*"}[n.Op]
		name := map[token.Token]string{token.ADD: "Add", token.SUB: "Sub", token.MUL: "Mul", token.QUO: "Quo", token.REM: "Rem"}[n.Op]
		of := "" // inferred, but for 1 << n, which would be an int
		if shifts(n.X) || shifts(n.Y) {
			of = "[" + s.info.TypeOf(n).String() + "]"
		}
		s.wrap(n, fmt.Sprintf("mutant%s%s(%d, ", name, of, s.add(n.OpPos, op, other)), ")")
		s.replace(n.OpPos, len(op), ",")
	}
}

func (s *switcher) add(at token.Pos, from, to string) int {
	id := len(s.mutants) + 1
	s.mutants = append(s.mutants, mutant{id: id, at: s.fset.Position(at), from: from, to: to})
	return id
}

// wrap puts text around an expression.
func (s *switcher) wrap(n ast.Expr, before, after string) {
	s.insert(n.Pos(), before, len(s.edits)+1)
	s.insert(n.End(), after, -len(s.edits)-1)
}

func (s *switcher) insert(at token.Pos, text string, order int) {
	offset := s.fset.Position(at).Offset
	s.edits = append(s.edits, edit{from: offset, to: offset, text: text, order: order})
}

func (s *switcher) replace(at token.Pos, length int, text string) {
	offset := s.fset.Position(at).Offset
	s.edits = append(s.edits, edit{from: offset, to: offset + length, text: text})
}

func (s *switcher) number(n ast.Expr) bool {
	b, ok := s.info.TypeOf(n).Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsInteger|types.IsFloat) != 0
}

// text is an expression as it stands in the file.
func (s *switcher) text(n ast.Expr) string {
	return string(s.source[s.fset.Position(n.Pos()).Offset:s.fset.Position(n.End()).Offset])
}

// shifts reports whether an expression is a shift, whose type its surroundings may decide.
func shifts(n ast.Expr) bool {
	b, ok := ast.Unparen(n).(*ast.BinaryExpr)
	return ok && b.Op == token.SHL
}

// named reports whether an expression is the constant of another package, as time.Second is: those have types.
func named(n ast.Expr) bool {
	_, ok := n.(*ast.SelectorExpr)
	return ok
}

// switches is what each mutated package is given.
const switches = `
import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync"
)

var (
	mutantChosen, _ = strconv.Atoi(os.Getenv("ROUSE_MUTANT"))
	mutantsReached  = os.Getenv("ROUSE_MUTANTS_REACHED")
	mutantsMet      sync.Map
)

func mutantOn(id int) bool {
	if mutantsReached != "" {
		if _, met := mutantsMet.LoadOrStore(id, true); !met {
			f, err := os.OpenFile(mutantsReached, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(f, id)
			f.Close()
		}
	}
	return id == mutantChosen
}

func mutantLess[T cmp.Ordered](edge, opposite int, a, b T) bool {
	switch edge, opposite := mutantOn(edge), mutantOn(opposite); {
	case edge:
		return a <= b
	case opposite:
		return a >= b
	}
	return a < b
}

func mutantLessOrEqual[T cmp.Ordered](edge, opposite int, a, b T) bool {
	switch edge, opposite := mutantOn(edge), mutantOn(opposite); {
	case edge:
		return a < b
	case opposite:
		return a > b
	}
	return a <= b
}

func mutantGreater[T cmp.Ordered](edge, opposite int, a, b T) bool {
	switch edge, opposite := mutantOn(edge), mutantOn(opposite); {
	case edge:
		return a >= b
	case opposite:
		return a <= b
	}
	return a > b
}

func mutantGreaterOrEqual[T cmp.Ordered](edge, opposite int, a, b T) bool {
	switch edge, opposite := mutantOn(edge), mutantOn(opposite); {
	case edge:
		return a > b
	case opposite:
		return a < b
	}
	return a >= b
}

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

type mutantInteger interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

func mutantAdd[T mutantNumber](id int, a, b T) T {
	if mutantOn(id) {
		return a - b
	}
	return a + b
}

func mutantSub[T mutantNumber](id int, a, b T) T {
	if mutantOn(id) {
		return a + b
	}
	return a - b
}

func mutantMul[T mutantNumber](id int, a, b T) T {
	if mutantOn(id) {
		return a / b
	}
	return a * b
}

func mutantQuo[T mutantNumber](id int, a, b T) T {
	if mutantOn(id) {
		return a * b
	}
	return a / b
}

func mutantRem[T mutantInteger](id int, a, b T) T {
	if mutantOn(id) {
		return a * b
	}
	return a % b
}

func mutantMinus[T mutantNumber](id int, minus T) T {
	if mutantOn(id) {
		return -minus
	}
	return minus
}

func mutantStep[T mutantNumber](id int, of, by T) T {
	if mutantOn(id) {
		return -by
	}
	return by
}
`
