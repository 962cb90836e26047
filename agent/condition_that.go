package agent

import (
	"context"
	"fmt"

	"rouse/agent/model/playbook"
)

// checkExpression judges by an expression on what the templates of the run know. Its value must be true or false.
func (q conditionChecker) checkExpression(ctx context.Context, g Condition) (value string, ok bool, err error) {
	last, err := q.times(ctx, q.task.run)
	if err != nil {
		return "", false, err
	}
	data := templateData(q.task.run, q.task.a.Number, q.task.detail, last.SuccessStart, last.End)
	if q.task.detail.Webhook != nil {
		body, err := q.ledger.DeliveryBody(ctx, q.task.run.ID)
		if err != nil {
			return "", false, err
		}
		addBody(data, body)
	}

	v, err := playbook.ExpandValue("that", "= "+g.That, data)
	if err != nil {
		return "", false, err
	}
	ok, isBool := v.(bool)
	if !isBool {
		return "", false, fmt.Errorf("it gives %T, which is neither true nor false", v)
	}
	return fmt.Sprint(ok), ok, nil
}
