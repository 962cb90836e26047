package imports

import (
	"fmt"
	"strconv"
	"strings"
)

// cronField is what a field of a crontab may hold.
type cronField struct {
	name     string
	min, max int
}

var cronFieldRules = []cronField{{"minute", 0, 59}, {"hour", 0, 23}, {"day-of-month", 1, 31}, {"month", 1, 12}, {"day-of-week", 0, 7}}

// cronFields writes the fields of a crontab as rouse reads them, where the two differ.
func cronFields(j *Job, fields []string) (string, error) {
	out := make([]string, len(fields))
	for i, rule := range cronFieldRules {
		var err error
		if out[i], err = rule.translate(j, fields[i]); err != nil {
			return "", err
		}
	}
	return strings.Join(out, " "), nil
}

func (r cronField) translate(j *Job, field string) (string, error) {
	items := strings.Split(field, ",")
	for i, item := range items {
		if low, high, random := strings.Cut(item, "~"); random {
			one, err := r.random(j, low, high)
			if err != nil || len(items) > 1 {
				return "", fmt.Errorf("the %s %q is chosen by chance, which is carried over for a minute alone", r.name, field)
			}
			return one, nil
		}

		body, step, stepped := strings.Cut(item, "/")
		if !stepped {
			continue
		}
		n, err := strconv.Atoi(step)
		if err != nil || n < 1 {
			return "", fmt.Errorf("the step %q of the %s is no number", step, r.name)
		}
		if _, err := strconv.Atoi(body); err == nil {
			j.remark("%s of the %s is every %s from %s on here; cron refuses it, or takes %s alone", item, r.name, step, body, body)
		}
		if n > r.max-r.min { // as cron has it, the first alone is left
			if items[i] = body; body == "*" {
				items[i] = strconv.Itoa(r.min)
			}
			if low, _, ranged := strings.Cut(body, "-"); ranged {
				items[i] = low
			}
		}
	}

	// A list with a star in it is a star for cron when it begins with one; here each item of a list is told.
	return strings.Join(items, ","), nil
}

// random is a time that cronie chooses when it reads the table: here the start is spread instead.
func (r cronField) random(j *Job, low, high string) (string, error) {
	from, to := r.min, r.max
	var err error
	if low != "" {
		if from, err = strconv.Atoi(low); err != nil {
			return "", err
		}
	}
	if high != "" {
		if to, err = strconv.Atoi(high); err != nil {
			return "", err
		}
	}
	if r.name != "minute" || from < r.min || to > r.max || to < from {
		return "", fmt.Errorf("no range of minutes")
	}
	j.set("jitter", fmt.Sprintf("%dm", to-from+1))
	j.remark("%s~%s was a minute chosen by chance; here the start is spread over the same minutes", low, high)
	return strconv.Itoa(from), nil
}
