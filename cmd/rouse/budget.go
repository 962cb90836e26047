package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newBudget(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "budget",
		Short: "Says what models have cost today and this month, what is left, and what is to come",
		Long: `Says what models have cost today and in the calendar month (in the daemon's timezone) and how
many tokens they took: of the daemon, each agent and each job, against limits: and budget: of the configuration.
RESERVED may still be taken by calls that are on. TO COME are the runs that the clock brings
until the day or the month ends, each at what the last twenty runs of its job took in the median; for a job that has not run
yet there is no forecast. Amounts that no server or program reported
are estimates and marked as such: an answer broke off or never came, or an executor does not report its cost.`,
		Args: cobra.NoArgs,
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, _ []string, s *session) error {
			var b api.Budget
			if done, err := s.fetch(cmd, asJSON, "/v1/budget", nil, &b); done || err != nil {
				return err
			}

			return printBudget(cmd.OutOrStdout(), b, s.now())
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printBudget(w io.Writer, b api.Budget, now time.Time) error {
	err := printPeriod(w, b.Day, b.Timezone, inText(b.EndsAt, now), b.Budgets)
	if err == nil {
		fmt.Fprintln(w)
		err = printPeriod(w, b.Month, b.Timezone, inText(b.MonthEndsAt, now), b.Months)
	}
	for _, r := range b.Months {
		if r.Scope == "daemon" && r.EstimatedTokens > 0 {
			fmt.Fprintf(w, "estimated: no server or program reported it%s\n", lastEstimated(b))
		}
	}
	return err
}

// lastEstimated says why the last part that is estimated is, if that is of today.
func lastEstimated(b api.Budget) string {
	for _, r := range b.Budgets {
		if r.Scope == "daemon" && r.EstimatedWhy != "" {
			return "; the last in " + text.OneLine(r.EstimatedWhy)
		}
	}
	return ""
}

// printPeriod prints the budgets of a day or a month.
func printPeriod(w io.Writer, name, zone, ends string, all []api.BudgetRow) error {
	fmt.Fprintf(w, "%s (%s), ends %s\n", name, zone, ends)
	var rows [][]string
	for _, r := range all {
		// The daemon's row stays even when all is zero, so that the table is never empty.
		limited := r.LimitUSD != nil || r.LimitTokens != nil
		if r.Scope != "daemon" && !limited && r.SpentTokens+r.ReservedTokens+r.ForecastTokens == 0 {
			continue // nothing to say
		}

		whose := r.Scope
		if r.Name != "" {
			whose += " " + r.Name
		}

		limit, left := "–", "–"
		if r.LimitUSD != nil {
			limit, left = dollars(*r.LimitUSD), dollars(*r.LeftUSD)
		}

		// Reserved tokens count as spent here: until their call ends, nobody else can have them.
		tokens := fmt.Sprint(r.SpentTokens + r.ReservedTokens)
		if r.LimitTokens != nil {
			tokens += fmt.Sprintf(" of %d", *r.LimitTokens)
		}

		spent := dollars(r.SpentUSD)
		if r.EstimatedUSD > 0 {
			spent += estimated(dollars(r.EstimatedUSD))
		}

		if r.EstimatedTokens > 0 {
			tokens += estimated(fmt.Sprint(r.EstimatedTokens))
		}

		rows = append(rows, []string{whose, spent, dollars(r.ReservedUSD), limit, left, tokens, toCome(r)})
	}

	return table(w, "BUDGET SPENT RESERVED LIMIT LEFT TOKENS TO_COME", rows)
}

// estimated marks the part of an amount that no server reported.
func estimated(part string) string { return fmt.Sprintf(" (%s estimated)", part) }

// toCome words the forecast of a row, and whether it fits.
func toCome(r api.BudgetRow) string {
	if r.RunsToCome == 0 {
		return "–"
	}

	words := text.Plural(r.RunsToCome, "run")
	switch {
	case r.ForecastUSD > 0:
		words += fmt.Sprintf(", about %s and %d tokens", dollars(r.ForecastUSD), r.ForecastTokens)
	case r.ForecastTokens > 0:
		words += fmt.Sprintf(", about %d tokens", r.ForecastTokens)
	}

	switch {
	case r.RunsUnforeseen == r.RunsToCome:
		words += ", no forecast"
	case r.RunsUnforeseen > 0:
		words += fmt.Sprintf(" (no forecast for %d)", r.RunsUnforeseen)
	}
	if (r.LeftUSD != nil && r.ForecastUSD > *r.LeftUSD) || (r.LeftTokens != nil && r.ForecastTokens > *r.LeftTokens) {
		words += ": more than is left"
	}

	return words
}

// dollars prints money with the digits that matter.
func dollars(v float64) string {
	switch {
	case v == 0:
		return "$0"
	case v < 1:
		return fmt.Sprintf("$%.4f", v)
	}
	return fmt.Sprintf("$%.2f", v)
}
