package playbook

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rouse/internal/text"
)

// Expect holds the conditions for the result of a call. If a condition is not met, the call has
// failed.
type Expect struct {
	Exit   []int  // accepted exit codes of a program; empty means any
	Status []int  // accepted status codes of a server; empty means any
	That   string // an expression that can use the call's result as result; optional
}

// judges reports whether Expect decides on the exit code or the status instead of the tool.
func (e Expect) judges() bool { return len(e.Exit) > 0 || len(e.Status) > 0 }

const (
	// kindUnmet is the error kind of a call whose result does not meet its expectation.
	kindUnmet = "unmet"
	// resultName is the name of the call's own result in an expectation.
	resultName = "result"
	// mustSucceed is the argument that makes a bad exit code or status a failure of the call.
	mustSucceed = "must_succeed"

	maxShown = 200 // characters of a result without a short form, in a message
)

func (e Expect) check(report func(error)) {
	if e.That != "" {
		report(checkExpression("expect.that", e.That))
	}
	for _, code := range e.Exit {
		if code < 0 || code > 255 {
			report(fmt.Errorf("expect.exit %d is no exit code: 0 to 255", code))
		}
	}
	for _, code := range e.Status {
		if code < 100 || code > 599 {
			report(fmt.Errorf("expect.status %d is no status code: 100 to 599", code))
		}
	}
}

func (p *Provider) unmet(result any) (string, error) {
	c := &p.calls[p.index]
	if why := cmp.Or(notAmong("exit_code", c.Expect.Exit, result), notAmong("status", c.Expect.Status, result)); why != "" {
		return p.describeUnmet(why, result), nil
	}
	if c.Expect.That == "" {
		return "", nil
	}

	data := maps.Clone(p.data)
	data[resultName] = result
	v, err := evaluate(p.label()+" expect.that", c.Expect.That, data)
	if err != nil {
		return "", err
	}

	switch holds, ok := v.(bool); {
	case !ok:
		return "", fmt.Errorf("expect.that of %s gives %s, which is neither true nor false", p.label(), p.quoteValue(v))
	case !holds:
		return p.describeUnmet("it expects that "+text.Collapse(c.Expect.That), result), nil
	}
	return "", nil
}

func notAmong(field string, codes []int, result any) string {
	if len(codes) == 0 {
		return ""
	}

	m, _ := result.(map[string]any)
	code, ok := m[field].(int64)
	if ok && slices.Contains(codes, int(code)) {
		return ""
	}

	words := make([]string, len(codes))
	for i, c := range codes {
		words[i] = fmt.Sprint(c)
	}
	return fmt.Sprintf("it expects %s %s", strings.ReplaceAll(field, "_", " "), strings.Join(words, " or "))
}

func (p *Provider) describeUnmet(expected string, result any) string {
	said := expected
	name, what := p.describe(p.calls[p.index].Name, result)
	if what == "" {
		what = text.Truncate(p.redact(show(result)), maxShown)
	}
	said += ", and came to " + strings.TrimPrefix(name+": "+what, ": ")

	m, _ := result.(map[string]any)
	var outputs []string
	for _, name := range []string{"stdout", "stderr"} {
		if written, ok := m[name].(string); ok {
			outputs = append(outputs, p.redact(written))
		}
	}
	return said + text.LastOf(outputs...)
}

// checkMustSucceed rejects redundant and contradictory settings.
func (c Call) checkMustSucceed() error {
	_, written := c.With[mustSucceed]
	switch {
	case c.MustSucceed != nil && written:
		return errors.New("must_succeed stands in the call and in with: say it once")
	case c.Expect.judges() && (c.MustSucceed != nil || written):
		return errors.New("expect says already which ends are a success: leave must_succeed out")
	}
	return nil
}
