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

// Expect is what has to be true of a call that was made; one that is not makes the call one that failed.
type Expect struct {
	Exit   []int  // exit codes of a program, of which it is to have one; none given: any
	Status []int  // status codes of a server, in the same way
	That   string // an expression that also knows the call's result, as result; "": none
}

// judges says whether the exit code, or the status, is decided on here and not by the tool.
func (e Expect) judges() bool { return len(e.Exit) > 0 || len(e.Status) > 0 }

const (
	// kindUnmet stands in a summary for a call that was made and did not come to what is expected of it.
	kindUnmet = "unmet"
	// resultName is what an expectation knows the result of its own call by.
	resultName = "result"
	// mustSucceed is the argument that makes a bad exit code or status a failure of the call.
	mustSucceed = "must_succeed"

	maxShown = 200 // characters of a result that has no short form, in a message
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

// checkMustSucceed refuses what would say the same twice, or the opposite.
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
