from common import TABLE, client, show

for i in range(200):
    client.execute_statement(
        Statement=f"""INSERT INTO "{TABLE}" VALUE {{'pk': 'partiql', 'sk': ?, 'n': ?}}""",
        Parameters=[{"N": str(i)}, {"S": "x" * 100}],
    )
client.execute_statement(Statement=f"""UPDATE "{TABLE}" SET n = 'y' WHERE pk = 'partiql' AND sk = 3""")
client.execute_statement(Statement=f"""DELETE FROM "{TABLE}" WHERE pk = 'partiql' AND sk = 4""")
client.execute_transaction(
    TransactStatements=[
        {"Statement": f"""UPDATE "{TABLE}" SET n = 'z' WHERE pk = 'partiql' AND sk = {i}"""} for i in (5, 6)
    ]
)
batch = client.batch_execute_statement(
    Statements=[{"Statement": f"""SELECT n FROM "{TABLE}" WHERE pk = 'partiql' AND sk = {i}"""} for i in (3, 4, 5)]
)
rows = client.execute_statement(Statement=f"""SELECT sk, n FROM "{TABLE}" WHERE pk = 'partiql'""")
assert "ConsumedCapacity" not in rows, rows
show({"batch": [r.get("Item") for r in batch["Responses"]], "rows": rows["Items"]})
