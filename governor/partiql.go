package governor

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

func classifyPartiQL(g *Governor, input any) (*call, any) {
	switch in := input.(type) {
	case *dynamodb.ExecuteStatementInput:
		s := parse(aws.ToString(in.Statement))
		c, copied := newCall(g, executeStatement, s.dir), *in
		c.touchStatement(s, reading(in.ConsistentRead))
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.BatchExecuteStatementInput:
		c, copied := newCall(g, batchExecuteStatement, Read), *in
		for _, one := range in.Statements {
			s := parse(aws.ToString(one.Statement))
			c.dir = max(c.dir, s.dir)
			c.touchStatement(s, reading(one.ConsistentRead))
		}
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.ExecuteTransactionInput:
		c, copied := newCall(g, executeTransaction, Read), *in
		for _, one := range in.TransactStatements {
			c.dir = max(c.dir, parse(aws.ToString(one.Statement)).dir)
		}
		for _, one := range in.TransactStatements {
			s := parse(aws.ToString(one.Statement))
			s.dir = c.dir // reads are charged as part of a transaction that writes
			c.touchStatement(s, 2*milli)
		}
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	}
	return nil, nil
}

func (c *call) touchStatement(s statement, read int64) {
	switch {
	case s.dir == Write && c.op == executeTransaction:
		c.touch(s.table, Write, 2*milli)
	case s.dir == Write:
		c.touch(s.table, Write, milli)
	default:
		c.touchIndex(s.table, &s.index, read)
	}
}

// statement is what matters in a PartiQL statement.
type statement struct {
	table, index string
	dir          Direction
}

// parse finds the verb and the table: SELECT … FROM t, INSERT INTO t, UPDATE t, DELETE FROM t. Anything else counts as
// a write to a table without a name, so that it is limited by the account's budget.
func parse(text string) statement {
	verb, rest := word(text)
	s := statement{dir: Write}
	before := "FROM"
	switch {
	case strings.EqualFold(verb, "SELECT"):
		s.dir = Read
	case strings.EqualFold(verb, "INSERT"):
		before = "INTO"
	case strings.EqualFold(verb, "UPDATE"):
		before = ""
	case strings.EqualFold(verb, "DELETE"), strings.EqualFold(verb, "EXISTS"):
	default:
		return s
	}
	for before != "" && rest != "" {
		var w string
		if w, rest = word(rest); strings.EqualFold(w, before) {
			break
		}
	}
	s.table, rest = name(rest)
	if strings.HasPrefix(rest, ".") {
		s.index, _ = name(rest[1:])
	}
	return s
}

// word returns the next word, quoted text or character.
func word(text string) (w, rest string) {
	text = strings.TrimLeft(text, " \t\r\n")
	if text == "" {
		return "", ""
	}
	if q := text[0]; q == '\'' || q == '"' {
		if end := strings.IndexByte(text[1:], q); end >= 0 {
			return text[:end+2], text[end+2:]
		}
		return text, ""
	}
	if end := strings.IndexFunc(text, func(r rune) bool { return !isName(r) }); end > 0 {
		return text[:end], text[end:]
	} else if end == 0 {
		return text[:1], text[1:]
	}
	return text, ""
}

// name returns the next word without quotes.
func name(text string) (n, rest string) {
	n, rest = word(text)
	return strings.Trim(n, `"`), rest
}

func isName(r rune) bool {
	return r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}
