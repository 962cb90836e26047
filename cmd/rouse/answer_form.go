package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/form"
	"rouse/internal/text"
)

// printForm lists what an item asks for.
func printForm(w io.Writer, i api.Item) {
	f, err := form.Parse(i.InputSchema)
	if err != nil {
		fmt.Fprintf(w, "    its input schema cannot be used: %s\n", text.OneLine(err.Error()))
		return
	}

	for _, one := range f.Fields() {
		fmt.Fprintf(w, "    %s%s\n", fieldText(one), aboutField(one))
	}
}

// fieldText is the name of a field, and what may be typed: "nights (whole number, default 2)".
func fieldText(f form.Field) string {
	kind := string(f.Kind)
	if f.Kind == form.List {
		kind = "texts, with commas between"
	}
	if len(f.Enum) > 0 {
		var values []string
		for n, v := range f.Enum {
			values = append(values, fmt.Sprintf("%d. %s", n+1, form.Plain(v)))
		}
		kind = strings.Join(values, ", ")
	}

	switch {
	case f.Default != nil:
		kind += ", default " + form.Plain(f.Default)
	case !f.Required:
		kind += ", may be left out"
	}

	// Schemas are written by models and by skills.
	return text.OneLine(fmt.Sprintf("%s (%s)", fieldName(f), kind))
}

func fieldName(f form.Field) string {
	if len(f.Path) == 0 {
		return "answer"
	}
	return f.Name()
}

// aboutField is what a field is for, "" where nothing says it.
func aboutField(f form.Field) string {
	var out string
	for _, s := range []string{f.Title, f.Description} {
		if s = shorten(s, 300); s != "" {
			out += ": " + s
		}
	}
	return out
}

// fillForm asks for an answer that was not typed: value by value, where there is a person to ask.
func fillForm(cmd *cobra.Command, at *place, item string, all, asJSON bool) error {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	var items []api.Item
	err = s.Get(cmd.Context(), "/v1/inbox", nil, &items)
	s.close() // it would keep the home to itself while somebody thinks
	if err != nil {
		return err
	}

	n := slices.IndexFunc(items, func(i api.Item) bool { return i.ID == item })
	switch in, ok := cmd.InOrStdin().(*os.File); {
	case n < 0:
		return usagef("nothing with the number %s waits for an answer; see: rouse inbox", item)
	case len(items[n].InputSchema) == 0:
		return usagef("give the answer: %s", answerHint(items[n]))
	case !ok || !term.IsTerminal(int(in.Fd())): //nolint:gosec // a descriptor fits
		return usagef("give the answer as JSON, or answer on a terminal: rouse answer %s '{…}'; see: rouse inbox", item)
	}

	f, err := form.Parse(items[n].InputSchema)
	if err != nil {
		return fmt.Errorf("inbox item %s cannot be answered: %w", item, err)
	}

	out := cmd.ErrOrStderr()
	for line := range strings.Lines(items[n].Message) {
		fmt.Fprintln(out, text.OneLine(line))
	}
	answer, err := askForm(cmd.InOrStdin(), out, f)
	if err != nil {
		return err
	}
	return sendAnswer(cmd, at, item, api.Answer{Text: string(answer), Kind: ledger.KindInput, All: all}, asJSON)
}

// askForm asks for each value of a form until it fits, or may be left out.
func askForm(in io.Reader, out io.Writer, f *form.Form) (json.RawMessage, error) {
	lines := bufio.NewReader(in)
	values := map[string]json.RawMessage{}
	for _, one := range f.Fields() {
		if about := strings.TrimPrefix(aboutField(one), ": "); about != "" {
			fmt.Fprintln(out, about)
		}

		value, err := askField(lines, out, one)
		if err != nil {
			return nil, err
		}
		if value != nil {
			values[one.Name()] = value
		}
	}

	return f.Assemble(values)
}

// askField asks for one value; nil when it is left out.
func askField(lines *bufio.Reader, out io.Writer, f form.Field) (json.RawMessage, error) {
	for {
		fmt.Fprintf(out, "%s: ", fieldText(f))
		line, err := lines.ReadString('\n')
		if err != nil {
			fmt.Fprintln(out)
			return nil, errors.New("the answer was broken off, and nothing was sent")
		}

		line = strings.TrimSpace(line)
		switch {
		case line == "" && f.Default != nil:
			return f.Default, nil
		case line == "" && !f.Required:
			return nil, nil
		case line == "":
			fmt.Fprintln(out, "  it is needed")
			continue
		}

		value, err := f.Value(line)
		if err == nil {
			return value, nil
		}
		fmt.Fprintf(out, "  %s\n", text.OneLine(err.Error()))
	}
}
