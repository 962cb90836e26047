package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/daemon"
	"rouse/internal/text"
)

// explainRequest prints the first request of a job.
func explainRequest(cmd *cobra.Command, at *place, job string, asJSON bool) error {
	cfg, err := at.load()
	if err != nil {
		return err
	}
	names := (&daemon.Setup{Config: cfg}).JobNames()
	if !slices.Contains(names, job) {
		return usagef("%s", text.NoSuch("job", job, names))
	}
	tables, err := tablesOf(cmd, at, cfg, job)
	if err != nil {
		return err
	}

	first, err := daemon.FirstRequestOf(cmd.Context(), cfg, job, tables)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), first)
	}

	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "The first request of job %s (agent %s) to the model %s: %d bytes\n\n", first.Job, first.Agent, first.Model, first.Bytes)
	rows := [][]string{{"system prompt", strconv.Itoa(first.System)}, {"task", strconv.Itoa(first.Task)}, {text.Plural(len(first.EachOf), "tool"), strconv.Itoa(first.Tools)}}
	for _, t := range first.EachOf {
		rows = append(rows, []string{t.Name, strconv.Itoa(t.Bytes)})
	}
	if err := table(w, "PART BYTES", append(rows, []string{"other fields", strconv.Itoa(first.Other)})); err != nil {
		return err
	}
	if len(first.Missing) > 0 {
		fmt.Fprintf(w, "The run adds %s.\n", strings.Join(first.Missing, ", "))
	}

	var body bytes.Buffer
	if err := json.Indent(&body, first.Body, "", "  "); err != nil {
		return err
	}
	return sayf(w, "\n%s\n", &body)
}

// tablesOf returns the tables of the database that the agent of a job has. A home that does not exist is not created.
func tablesOf(cmd *cobra.Command, at *place, cfg *config.Config, job string) (tables api.Schema, err error) {
	if _, err := os.Stat(filepath.Join(string(cfg.Home), "ledger.db")); err != nil && daemon.SharedLedger(string(cfg.Home)) == nil {
		return tables, nil //nolint:nilerr // no run has made a table there
	}
	i := slices.IndexFunc(cfg.Jobs, func(j config.Job) bool { return string(j.Name) == job })
	k := slices.IndexFunc(cfg.Agents, func(a config.Agent) bool { return i >= 0 && string(a.Name) == cfg.Jobs[i].Agent })
	if k < 0 || !config.On(cfg.Agents[k].Database.Enabled) {
		return tables, nil
	}

	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return tables, err
	}
	defer s.close()
	return tables, s.Get(cmd.Context(), "/v1/agents/"+url.PathEscape(cfg.Jobs[i].Agent)+"/schema", nil, &tables)
}
