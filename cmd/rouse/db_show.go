package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

// dbGet reads something of an agent's database. With --json it is printed, and done.
func dbGet(cmd *cobra.Command, at *place, o dbOptions, verb string, query url.Values, into any) (done bool, err error) {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return false, err
	}
	defer s.close()

	if err := s.Get(cmd.Context(), o.path(verb), query, into); err != nil {
		return false, err
	}
	if stats, ok := into.(*api.Stats); ok && s.missing() {
		*stats = api.Stats{Path: strings.Replace(stats.Path, s.opened, s.home, 1), Quota: stats.Quota}
	}
	if o.json {
		return true, printJSON(cmd.OutOrStdout(), into)
	}

	return false, nil
}

func dbStats(cmd *cobra.Command, at *place, o dbOptions) error {
	var s api.Stats
	if done, err := dbGet(cmd, at, o, "stats", nil, &s); done || err != nil {
		return err
	}

	w := cmd.OutOrStdout()
	quota := "no quota"
	if s.Quota > 0 {
		quota = fmt.Sprintf("%d %% of the quota of %s", s.Bytes*100/s.Quota, text.Size(s.Quota))
	}

	fmt.Fprintf(w, "%s\n%s (%s), of it log %s, free %s\nchangelog %s %s, %s; call journal %s\n",
		text.OneLine(s.Path), text.Size(s.Bytes), quota, text.Size(s.LogBytes), text.Size(s.FreeBytes), text.Comma(s.Changes), text.Noun(s.Changes, "entry"), text.Size(s.ChangelogBytes), text.Size(s.JournalBytes))

	switch {
	case s.Quota > 0 && s.Bytes >= s.Quota:
		fmt.Fprintf(w, "full: nothing more is written until database.quota of %s is raised\n", o.agent)
	// Divided first: a quota near the largest integer must not overflow.
	case s.Quota > 0 && s.Bytes >= s.Quota/5*4:
		fmt.Fprintf(w, "nearly full: beyond the quota nothing more is written; raise database.quota of %s\n", o.agent)
	}

	if len(s.Tables) == 0 {
		return sayf(w, "no tables yet\n")
	}

	var rows [][]string
	for _, t := range s.Tables {
		rows = append(rows, []string{t.Name, text.Comma(t.Rows), text.Comma(t.Deleted), text.Size(t.Bytes)})
	}

	return table(w, "TABLE ROWS DELETED SIZE", rows)
}

func dbLog(cmd *cobra.Command, at *place, o dbOptions) error {
	q := url.Values{}
	if o.table != "" {
		q.Set("table", o.table)
	}

	if o.run != "" {
		q.Set("run", o.run)
	}

	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	log, err := getPages(cmd.Context(), s, o.path("changes"), q, o.log, func(c api.Change) string { return strconv.FormatInt(c.ID, 10) })
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), log)
	}

	if len(log) == 0 {
		none := "nothing was changed"
		if o.table != "" {
			none += " in a table " + text.OneLine(o.table)
		}

		if o.run != "" {
			none += " by run " + text.OneLine(o.run)
		}

		return sayf(cmd.OutOrStdout(), "%s\n", none)
	}

	var rows [][]string
	for _, c := range log {
		who := c.Actor
		// 0 is the owner's own change, made by no run.
		if c.Run != "0" {
			who += " run " + c.Run
			if c.Other {
				who += " of another ledger"
			}
		}
		rows = append(rows, []string{strconv.FormatInt(c.ID, 10), c.At, who, c.Op, c.Table, shorten(changeText(c), 100)})
	}

	return table(cmd.OutOrStdout(), "ID AT WHO OP TABLE WHAT", rows)
}

// changeText says in a line what a change did.
func changeText(c api.Change) string {
	var chunk struct{ Count int64 }
	null := func(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }
	switch {
	case c.SQL != "":
		return c.SQL
	// Bulk changes are one entry for a range of rows; its key is an object with their count.
	case json.Unmarshal(c.Key, &chunk) == nil && chunk.Count > 1:
		return fmt.Sprintf("%s rows %s", text.Comma(chunk.Count), c.Key)
	case null(c.Before):
		return fmt.Sprintf("+ %s", c.After)
	case null(c.After):
		return fmt.Sprintf("- %s", c.Before)
	}

	return fmt.Sprintf("%s: %s → %s", c.Key, c.Before, c.After)
}

func dbViews(cmd *cobra.Command, at *place, o dbOptions) error {
	var views []api.View
	if done, err := dbGet(cmd, at, o, "views", nil, &views); done || err != nil {
		return err
	}

	if len(views) == 0 {
		return sayf(cmd.OutOrStdout(), "%s has no saved views\n", o.agent)
	}

	var rows [][]string
	for _, v := range views {
		at := v.RefreshedAt
		if at == "" {
			at = "never"
		}
		rows = append(rows, []string{v.Name, v.RenderHint, v.Refresh, at, paramsText(v.Params), v.Description, shorten(v.SQL, 80)})
	}

	return table(cmd.OutOrStdout(), "VIEW SHOWN REFRESH REFRESHED PARAMETERS DESCRIPTION SQL", rows)
}

// paramsText names parameters with their defaults: "month=2026-01, least".
func paramsText(params []api.ViewParam) string {
	out := make([]string, len(params))
	for i, p := range params {
		if out[i] = p.Name; p.Default != nil {
			out[i] += "=" + cell(p.Default)
		}
	}
	return strings.Join(out, ", ")
}

func dbRunView(cmd *cobra.Command, at *place, o dbOptions, name string) error {
	ask := api.ViewRequest{Params: map[string]any{}}
	for _, given := range o.params {
		param, value, ok := strings.Cut(given, "=")
		if !ok || param == "" {
			return usagef("--param is name=value, not %q", given)
		}
		ask.Params[param] = value
	}

	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	var out api.ViewResult
	if done, err := s.send(cmd, o.json, o.path("views/"+url.PathEscape(name)+"/run"), ask, &out); done || err != nil {
		return err
	}

	return printRows(cmd.OutOrStdout(), out.Rows)
}
