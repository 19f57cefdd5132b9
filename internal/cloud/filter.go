package cloud

// What functions are sent of the stream. The keys are those of docs/format/dynamodb.md; the tests hold the filters
// against records that the store writes.

// bucketRecords are all changes of buckets, and what processes have counted beside them.
func bucketRecords() obj { return sorted("#STATE", "#COUNTS") }

// expiredAudit are audit events that DynamoDB deleted, and nobody else.
func expiredAudit() obj {
	f := sorted(obj{"prefix": "#AUDIT"})
	f["eventName"] = list{"REMOVE"}
	f["userIdentity"] = obj{"type": list{"Service"}, "principalId": list{"dynamodb.amazonaws.com"}}
	return f
}

// configRecords are changes of entities, limits and namespaces.
func configRecords() obj {
	return sorted(obj{"prefix": "#META"}, obj{"prefix": "#CONFIG"}, obj{"prefix": "#NAMESPACE"}, obj{"prefix": "#NSID"})
}

// sorted matches by range key.
func sorted(keys ...any) obj {
	return obj{"dynamodb": obj{"Keys": obj{sortKey: obj{"S": keys}}}}
}

// filter is a filter as an event source mapping has it: a text.
func filter(pattern obj) obj { return obj{"Pattern": compact(pattern)} }
