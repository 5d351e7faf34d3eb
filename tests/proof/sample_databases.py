"""Public sample databases made again: their tables, keys, views and triggers in the style of each, with seeded rows of our own.

After Chinook (names in brackets, a named primary key and a unique index over the same column), Northwind (names with
blanks, AUTOINCREMENT, CHECKs, BLOBs, views that join five tables) and Sakila (double quotes, triggers that write the table
itself, ON UPDATE CASCADE everywhere).
"""

from __future__ import annotations

from random import Random
from typing import Any

__all__ = ["SAMPLES", "fill"]

CHINOOK = """
CREATE TABLE [Artist] ([ArtistId] INTEGER NOT NULL, [Name] NVARCHAR(120), CONSTRAINT [PK_Artist] PRIMARY KEY ([ArtistId]));
CREATE TABLE [Album]
(
    [AlbumId] INTEGER  NOT NULL,
    [Title] NVARCHAR(160)  NOT NULL,
    [ArtistId] INTEGER  NOT NULL,
    CONSTRAINT [PK_Album] PRIMARY KEY  ([AlbumId]),
    FOREIGN KEY ([ArtistId]) REFERENCES [Artist] ([ArtistId])
		ON DELETE NO ACTION ON UPDATE NO ACTION
);
CREATE TABLE [Track]
(
    [TrackId] INTEGER  NOT NULL,
    [Name] NVARCHAR(200)  NOT NULL,
    [AlbumId] INTEGER,
    [Composer] NVARCHAR(220),
    [Milliseconds] INTEGER  NOT NULL,
    [UnitPrice] NUMERIC(10,2)  NOT NULL,
    CONSTRAINT [PK_Track] PRIMARY KEY  ([TrackId]),
    FOREIGN KEY ([AlbumId]) REFERENCES [Album] ([AlbumId])
		ON DELETE NO ACTION ON UPDATE NO ACTION
);
CREATE TABLE [Playlist] ([PlaylistId] INTEGER NOT NULL, [Name] NVARCHAR(120), CONSTRAINT [PK_Playlist] PRIMARY KEY ([PlaylistId]));
CREATE TABLE [PlaylistTrack]
(
    [PlaylistId] INTEGER  NOT NULL,
    [TrackId] INTEGER  NOT NULL,
    CONSTRAINT [PK_PlaylistTrack] PRIMARY KEY  ([PlaylistId], [TrackId]),
    FOREIGN KEY ([PlaylistId]) REFERENCES [Playlist] ([PlaylistId])
		ON DELETE NO ACTION ON UPDATE NO ACTION,
    FOREIGN KEY ([TrackId]) REFERENCES [Track] ([TrackId])
		ON DELETE NO ACTION ON UPDATE NO ACTION
);
CREATE UNIQUE INDEX [IPK_Album] ON [Album]([AlbumId]);
CREATE INDEX [IFK_AlbumArtistId] ON [Album] ([ArtistId]);
CREATE UNIQUE INDEX [IPK_PlaylistTrack] ON [PlaylistTrack]([PlaylistId], [TrackId]);
CREATE INDEX [IFK_PlaylistTrackTrackId] ON [PlaylistTrack] ([TrackId]);
CREATE INDEX [IFK_TrackAlbumId] ON [Track] ([AlbumId]);
"""

NORTHWIND = """
CREATE TABLE [Categories]
(      [CategoryID] INTEGER PRIMARY KEY AUTOINCREMENT,
       [CategoryName] TEXT,
       [Description] TEXT,
       [Picture] BLOB
);
CREATE TABLE [Customers]
(      [CustomerID] TEXT,
       [CompanyName] TEXT,
       [City] TEXT,
       PRIMARY KEY (`CustomerID`)
);
CREATE TABLE [Products](
   [ProductID]INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
   [ProductName]TEXT NOT NULL,
   [CategoryID]INTEGER,
   [UnitPrice]NUMERIC DEFAULT 0,
   [UnitsInStock]INTEGER DEFAULT 0,
   [Discontinued]TEXT NOT NULL DEFAULT '0',
    CHECK ([UnitPrice]>=(0)),
    CHECK ([UnitsInStock]>=(0)),
	FOREIGN KEY ([CategoryID]) REFERENCES [Categories] ([CategoryID])
		ON DELETE NO ACTION ON UPDATE NO ACTION
);
CREATE TABLE [Orders](
   [OrderID]INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
   [CustomerID]TEXT,
   [OrderDate]DATETIME,
   [Freight]NUMERIC DEFAULT 0,
    FOREIGN KEY ([CustomerID]) REFERENCES [Customers] ([CustomerID])
		ON DELETE NO ACTION ON UPDATE NO ACTION
);
CREATE TABLE [Order Details](
   [OrderID]INTEGER NOT NULL,
   [ProductID]INTEGER NOT NULL,
   [UnitPrice]NUMERIC NOT NULL DEFAULT 0,
   [Quantity]INTEGER NOT NULL DEFAULT 1,
   [Discount]REAL NOT NULL DEFAULT 0,
    PRIMARY KEY ("OrderID","ProductID"),
    CHECK ([Discount]>=(0) AND [Discount]<=(1)),
    CHECK ([Quantity]>(0)),
	FOREIGN KEY ([OrderID]) REFERENCES [Orders] ([OrderID])
		ON DELETE NO ACTION ON UPDATE NO ACTION,
	FOREIGN KEY ([ProductID]) REFERENCES [Products] ([ProductID])
		ON DELETE NO ACTION ON UPDATE NO ACTION
);
CREATE VIEW [Order Details Extended] AS
SELECT "Order Details".OrderID, "Order Details".ProductID, Products.ProductName, "Order Details".UnitPrice, "Order Details".Quantity,
    ("Order Details".UnitPrice*Quantity*(1-Discount)/100)*100 AS ExtendedPrice
FROM Products INNER JOIN "Order Details" ON Products.ProductID = "Order Details".ProductID;
CREATE VIEW [Product Sales] AS
SELECT Categories.CategoryName, Products.ProductName, Sum("Order Details Extended".ExtendedPrice) AS Sales
FROM Categories JOIN Products ON Categories.CategoryID = Products.CategoryID
    JOIN "Order Details Extended" ON Products.ProductID = "Order Details Extended".ProductID
    JOIN Orders ON Orders.OrderID = "Order Details Extended".OrderID
WHERE Orders.OrderDate BETWEEN '2016-01-01' AND '2018-12-31'
GROUP BY Categories.CategoryName, Products.ProductName;
"""

SAKILA = """
CREATE TABLE language (language_id SMALLINT NOT NULL , name CHAR(20) NOT NULL, last_update TIMESTAMP NOT NULL, PRIMARY KEY (language_id));
CREATE TABLE film (
  film_id int NOT NULL,
  title VARCHAR(255) NOT NULL,
  release_year VARCHAR(4) DEFAULT NULL,
  language_id SMALLINT NOT NULL,
  original_language_id SMALLINT DEFAULT NULL,
  rental_rate DECIMAL(4,2)  DEFAULT 4.99 NOT NULL,
  rating VARCHAR(10) DEFAULT 'G',
  special_features VARCHAR(100) DEFAULT NULL,
  last_update TIMESTAMP NOT NULL,
  PRIMARY KEY  (film_id),
  CONSTRAINT CHECK_special_rating CHECK(rating in ('G','PG','PG-13','R','NC-17')),
  CONSTRAINT fk_film_language FOREIGN KEY (language_id) REFERENCES language (language_id) ,
  CONSTRAINT fk_film_language_original FOREIGN KEY (original_language_id) REFERENCES language (language_id)
);
CREATE TABLE inventory (
  inventory_id INT NOT NULL,
  film_id INT NOT NULL,
  store_id INT NOT NULL,
  last_update TIMESTAMP NOT NULL,
  PRIMARY KEY  (inventory_id),
  CONSTRAINT fk_inventory_film FOREIGN KEY (film_id) REFERENCES film (film_id) ON DELETE NO ACTION ON UPDATE CASCADE
);
CREATE INDEX idx_fk_film_id ON inventory(film_id);
CREATE INDEX idx_fk_film_id_store_id ON inventory(store_id,film_id);
CREATE INDEX idx_fk_language_id ON film(language_id);
CREATE INDEX idx_title ON film(title);
CREATE TRIGGER film_trigger_ai AFTER INSERT ON film
 BEGIN
  UPDATE film SET last_update = DATETIME('NOW')  WHERE rowid = new.rowid;
 END;
CREATE TRIGGER film_trigger_au AFTER UPDATE ON film
 BEGIN
  UPDATE film SET last_update = DATETIME('NOW')  WHERE rowid = new.rowid;
 END;
CREATE VIEW "film_list"
AS
SELECT film.film_id AS FID, film.title AS title, language.name AS language, film.rental_rate AS price, film.rating AS rating
FROM film LEFT JOIN language ON film.language_id = language.language_id;
"""

SAMPLES: dict[str, tuple[str, tuple[tuple[str, str, str, str], ...]]] = {
    "Chinook": (
        CHINOOK,
        (
            ("Album", "Title", "NVARCHAR(160)", "NVARCHAR(400)"), ("Track", "UnitPrice", "NUMERIC(10,2)", "DECIMAL(12,4)"),
            ("Track", "Milliseconds", "INTEGER", "BIGINT"), ("PlaylistTrack", "TrackId", "INTEGER", "INT"),
        ),
    ),
    "Northwind": (
        NORTHWIND,
        (
            ("Order Details", "Quantity", "INTEGER", "BIGINT"), ("Products", "Discontinued", "TEXT", "VARCHAR(1)"),
            ("Categories", "Description", "TEXT", "CLOB"), ("Customers", "City", "TEXT", "VARCHAR(60)"), ("Orders", "OrderDate", "DATETIME", "NUMERIC"),
        ),
    ),
    "Sakila": (
        SAKILA,
        (
            ("film", "title", "VARCHAR(255)", "TEXT"), ("film", "rental_rate", "DECIMAL(4,2)", "DECIMAL(8,2)"),
            ("inventory", "store_id", "INT", "SMALLINT"), ("inventory", "last_update", "TIMESTAMP", "DATETIME"),
        ),
    ),
}  # fmt: skip
"""Per database: the script, and (table, column, its type, another type of the same meaning)."""


def fill(connection: Any, name: str, *, rows: int = 120) -> None:
    """Make one of them."""
    connection.executescript(SAMPLES[name][0])
    random = Random(name)
    tables = [table for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid")]
    for table in tables:
        columns = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,)).fetchall()
        sole_key = sum(1 for *_, pk in columns if pk) == 1
        marks = ", ".join("?" * len(columns))
        for number in range(1, rows + 1):
            values = [_value(random, column, kind, number, is_key=sole_key and pk, rows=rows) for column, kind, pk in columns]
            connection.execute(f'INSERT OR IGNORE INTO "{table}" VALUES ({marks})', values)
    connection.execute(f'DELETE FROM "{tables[-1]}" WHERE rowid % 7 = 3')


def _value(random: Random, column: str, type_text: str, number: int, *, is_key: bool, rows: int) -> Any:
    """Return a value that suits a column by its name and type; references find their rows, since every key is 1 to `rows`."""
    kind = type_text.upper()
    if is_key:
        return f"C{number:04}" if kind == "TEXT" else number
    if column.lower().endswith("id"):
        target = random.randint(1, rows)
        return f"C{target:04}" if kind == "TEXT" else target
    if "BLOB" in kind:
        return random.randbytes(12)
    if "DATE" in kind or "TIME" in kind:
        return f"201{random.randint(5, 9)}-0{random.randint(1, 9)}-1{random.randint(0, 9)} 00:00:00"
    if column in ("rating", "Discount"):
        return random.choice(["G", "PG", "PG-13", "R", "NC-17"]) if column == "rating" else random.choice([0, 0.05, 0.25])
    if any(part in kind for part in ("INT", "NUM", "DEC", "REAL")):
        return random.choice([number, round(random.random() * 40, 2), 1]) if "INT" not in kind else random.randint(1, 10**6)
    return random.choice([f"{column} {number}", f"It's {column.lower()} № {number}", None if column in ("Composer", "City", "special_features") else "0"])
