package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newBudget(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "budget",
		Short: "Says what models have cost today and this month, what is left, and what is to come",
		Long: `Says what models have cost today and in the calendar month (in the daemon's timezone) and how
many tokens they took: of the daemon, each agent and each job, against limits: and budget: of the configuration.
RESERVED may still be taken by calls that are on. TO COME are the runs that the clock brings
until the day or the month ends, each at what the last twenty runs of its job took in the median; for a job that has not run
yet there is no forecast. Amounts that no server or program reported
are estimates and marked as such: an answer broke off or never came, or an executor does not report its cost.`,
		RunE: showing(env, "/v1/budget", printBudget),
	})
}

func printBudget(s *session, b api.Budget) error {
	w, now := s.out, s.now()
	err := printPeriod(w, b.Day, b.Timezone, inText(b.EndsAt, now), b.Budgets)
	if err == nil {
		fmt.Fprintln(w)
		err = printPeriod(w, b.Month, b.Timezone, inText(b.MonthEndsAt, now), b.Months)
	}

	daemons := func(r api.BudgetRow) bool { return r.Scope == "daemon" }
	if n := slices.IndexFunc(b.Months, daemons); n >= 0 && b.Months[n].EstimatedTokens > 0 {
		last := ""
		if n := slices.IndexFunc(b.Budgets, daemons); n >= 0 && b.Budgets[n].EstimatedWhy != "" {
			last = "; the last in " + text.OneLine(b.Budgets[n].EstimatedWhy)
		}
		fmt.Fprintf(w, "estimated: no server or program reported it%s\n", last)
	}
	return err
}

// printPeriod prints the budgets of a day or a month.
func printPeriod(w io.Writer, name, zone, ends string, all []api.BudgetRow) error {
	fmt.Fprintf(w, "%s (%s), ends %s\n", name, zone, ends)
	all = slices.DeleteFunc(slices.Clone(all), func(r api.BudgetRow) bool {
		// Keep the daemon's row even if all its values are zero, so that the table is never empty.
		return r.Scope != "daemon" && r.LimitUSD == nil && r.LimitTokens == nil && r.SpentTokens+r.ReservedTokens+r.ForecastTokens == 0
	})
	return list(w, all, "", "BUDGET SPENT RESERVED LIMIT LEFT TOKENS TO_COME", func(r api.BudgetRow) []string {
		limit, left := "–", "–"
		if r.LimitUSD != nil {
			limit, left = dollars(*r.LimitUSD), dollars(*r.LeftUSD)
		}
		// Reserved tokens count as spent here: other runs cannot use them until the call ends.
		tokens := fmt.Sprint(r.SpentTokens + r.ReservedTokens)
		if r.LimitTokens != nil {
			tokens += fmt.Sprintf(" of %d", *r.LimitTokens)
		}
		if r.EstimatedTokens > 0 {
			tokens += estimated(fmt.Sprint(r.EstimatedTokens))
		}
		spent := dollars(r.SpentUSD)
		if r.EstimatedUSD > 0 {
			spent += estimated(dollars(r.EstimatedUSD))
		}
		return []string{strings.TrimSpace(r.Scope + " " + r.Name), spent, dollars(r.ReservedUSD), limit, left, tokens, toCome(r)}
	})
}

// estimated marks the part of an amount that rouse estimated because the server did not report it.
func estimated(part string) string { return fmt.Sprintf(" (%s estimated)", part) }

// toCome describes the forecast of a row, and whether it fits into the budget.
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

// dollars formats an amount of money with its significant digits.
func dollars(v float64) string {
	switch {
	case v == 0:
		return "$0"
	case v < 1:
		return fmt.Sprintf("$%.4f", v)
	}
	return fmt.Sprintf("$%.2f", v)
}
